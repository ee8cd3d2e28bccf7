"""How a framework's watch begins and ends: `arm`, `attach` and `stand_down`, for the one watch that a process has.

A session must have `state` (watch.py), `options`, `run`, `install()`, `watch(models)`, `finish(reason, message)`, which
calls `when_over(session)`, `forked()`, `at_exit()`, and of its class `accepts`: the class of a model that a script may
hand over and its name, or None.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .beside import Beside, wait
from .guard import say
from .plan import resolve_plan
from .watch import ARMED, OFF, OPEN

if TYPE_CHECKING:
    from .framework import Framework


def _open_run(**options: Any) -> Any:
    from .._capture import Run
    return Run.open(**options)


class Door:
    """:param make: called with (open_run, options) for each watch that begins: the adaptor's Session
    :param attached: called with a session: what `attach` returns
    """

    def __init__(self, make: type[Any], attached: Callable[..., Any]) -> None:
        self._make, self._attached = make, attached
        # this process's, until it is over; a second one would record everything twice
        self._session: Framework | None = None
        self._beside: Beside | None = None
        self._begun = False
        self._attaches = False      # the script has begun it, by `attach`

    def arm(self, open_run: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Watches whatever trains in this process. Nothing is written before it does. Idempotent; returns the session.

        :param open_run: called with Run.open's keyword arguments at the first training event; default: Run.open.
        """
        if self._session is None or self._session.state is OFF:
            self._attaches = False
            self._begin(open_run, options)
        return self._session

    def attach(self, model: Any = None, config: Any = None, dir: Any = None,
               open_run: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Records this training; tdbg.attach says of what is given, and what comes back.

        :param open_run: as for `arm`; it makes the directory and the plan as well.
        """
        models = self._models(model)
        session = self._session
        if session is not None and session.state is OPEN and (
                dir is None or os.path.abspath(dir) == os.path.abspath(session.run.directory)):
            self._too_late({"config": config, **options})
            return self._enter(models)
        if os.environ.get("TDBG_RUN") and dir is None and open_run is None:
            if config is not None:
                say("attach: the run and its configuration are those of `tdbg run`; `config` is not used")
            self.arm(**options).options.update(options)     # it was armed when the framework was imported
            return self._enter(models)
        if (
            models
            and session is not None
            and session.state is ARMED
            and session.run is None
            and self._attaches
            and self._make.accepts is not None
            and (config, dir, open_run, options) == (None, None, None, {})
        ):
            return self._enter(models)      # another model of the training that is still to begin
        self.stand_down("another run was attached")
        if open_run is not None:
            options.setdefault("directory", dir or "")
            self._begin(open_run, options)
        else:
            resolved = resolve_plan(dir, config)
            options.setdefault("directory", resolved.directory)
            if resolved.plan:
                options.setdefault("plan_json", resolved.plan)
            self._begin(open_run, options, resolved.beside)
        self._attaches = True
        return self._enter(models)

    def stand_down(self, why: str) -> None:
        """Ends this watch because another begins (a hook that the script made): nothing is to be recorded twice."""
        if self._session is not None:
            self._session.finish("closed", why)

    def now(self) -> Any:
        """This process's session; None if nothing is watched (any more)."""
        return None if self._session is None or self._session.state is OFF else self._session

    def watching(self) -> Any:
        """This process's session, begun if there was none; None when its watch is over."""
        if not self._begun:
            self.arm()
        return None if self._session is None or self._session.state is OFF else self._session

    def _models(self, model: Any) -> list[Any]:
        models = [] if model is None else list(model) if isinstance(model, (list, tuple)) else [model]
        if self._make.accepts is not None:
            kind, called = self._make.accepts
            for m in models:
                if not isinstance(m, kind):
                    raise TypeError(
                        f"attach(model=...): {called} is accepted, or a list of them, not {type(m).__name__}"
                    )
        return models

    @staticmethod
    def _too_late(given: dict[str, Any]) -> None:
        """The run is open: what it was opened with stays."""
        names = [name for name, value in given.items() if value is not None]
        if names:
            say(f"attach: the run is open already; {', '.join(names)} {'is' if len(names) == 1 else 'are'} not used")

    def _enter(self, models: list[Any]) -> Any:
        assert self._session is not None
        self._session.watch(models)
        return self._attached(self._session)

    def _begin(self, open_run: Callable[..., Any] | None, options: dict[str, Any],
               beside: Beside | None = None) -> None:
        self.stand_down("another watch began")      # one that failures disarmed has an end all the same
        if not self._begun:
            self._begun = True
            # Once, whatever number of watches follows: what is registered here is never let go of.
            atexit.register(self._at_exit)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._forked)
        session = self._make(open_run or _open_run, options)
        session.when_over = self._over
        try:
            session.install()
        except Exception:
            session.disarm()
            if beside is not None:
                beside.let_go()
            raise
        self._session, self._beside = session, beside

    def _over(self, session: Framework) -> None:
        """Drops every reference to the session, and so to what it watched."""
        if session is self._session:
            self._session = None
            if self._beside is not None:
                if session.run is None:
                    self._beside.leave()    # a child of this process may be the one that trains
                else:
                    self._beside.let_go()

    def _at_exit(self) -> None:
        session = self._session
        if session is not None:
            session.at_exit()
            self._over(session)
        try:
            late = wait()
        except KeyboardInterrupt:       # the user does not want to wait
            return
        if late:
            say(f"what reads the run beside the training is not through with it (process {late[0]}), and goes on")

    def _forked(self) -> None:
        if self._session is not None:
            if self._beside is not None and self._session.run is not None:
                self._beside.leave()        # else the child may be the one that trains
            self._session.forked()
