"""Rules written in Python: smdebug's Rule class and what drives it.

    class Spike(Rule):
        def __init__(self, base_trial, threshold=10.0):
            super().__init__(base_trial)
            self.threshold = float(threshold)

        def set_required_tensors(self, step: int) -> None:  # noqa: B027 - nothing is needed by default
            for name in self.base_trial.tensor_names(collection="gradients"):
                self.req_tensors.add(name, steps=[step])

        def invoke_at_step(self, step: int) -> bool:
            return any(t.reduction_value(step, "max", abs=True) > self.threshold for t in self.req_tensors.get())

    invoke_rule(Spike(create_trial(path)), raise_eval_cond=True)

Steps are global steps. Everything here works on any trial object with smdebug's methods.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

from ..errors import StepUnavailable, TensorUnavailableForStep
from ..errors import TensorUnavailable as _NoTensor
from ..modes import ModeKeys
from .exceptions import NoMoreProfilerData, RuleEvaluationConditionMet, TensorUnavailable

_logger = logging.getLogger("smdebug")


@contextmanager
def _still(trials: Iterable[Any]) -> Iterator[None]:
    """Trials that do not look for new data meanwhile; afterwards they do what they did before."""
    with ExitStack() as stack:
        for trial in trials:
            before = getattr(trial, "dynamic_refresh", None)
            if before is None:
                continue
            trial.dynamic_refresh = False
            stack.callback(setattr, trial, "dynamic_refresh", before)
        yield


class RequiredTensorsForTrial:
    """What a rule asks of one trial at one step: tensors, each with the steps at which it is needed."""

    def __init__(self, trial: Any) -> None:
        self.trial = trial
        self._steps: dict[str, set[int]] = {}

    def add(self, name: str, steps: Iterable[int], should_match_regex: bool = False) -> None:
        """:param steps: global steps. With `should_match_regex`, every tensor whose name `name` matches.

        :raises TensorUnavailable: no such tensor
        """
        if should_match_regex:
            names = self.trial.tensor_names(regex=name)
            if not names:
                raise TensorUnavailable(name)
        else:
            if not self.trial.has_tensor(name):
                raise TensorUnavailable(name)
            names = [name]
        for found in names:
            self._steps.setdefault(found, set()).update(steps)

    def get_names(self) -> list[str]:
        """Names of what is needed, sorted."""
        return sorted(self._steps)

    def get(self) -> list[Any]:
        """The tensors themselves."""
        return [self.trial.tensor(name) for name in self.get_names()]

    def get_tensor_steps(self, name: str) -> list[int] | None:
        """Steps at which it is needed; None: it is not."""
        return sorted(self._steps[name]) if name in self._steps else None

    def clear(self) -> None:
        """Nothing is needed any more."""
        self._steps.clear()

    def fetch(self) -> None:
        """Waits for the steps and reads every value once. Raises as Trial.wait_for_steps and Tensor.value do."""
        steps = sorted({step for steps in self._steps.values() for step in steps})
        if not steps:
            return
        self.trial.wait_for_steps(steps, ModeKeys.GLOBAL)
        for name, of_tensor in self._steps.items():
            tensor = self.trial.tensor(name)
            for step in sorted(of_tensor):
                tensor.value(step)


class RequiredTensors:
    """Requirements over all of a rule's trials. `trial=None` means the base trial."""

    def __init__(self, base_trial: Any, other_trials: Iterable[Any] | None = None) -> None:
        self.base_trial = base_trial
        self._by_trial = [(trial, RequiredTensorsForTrial(trial)) for trial in [base_trial, *(other_trials or [])]]

    def _of(self, trial: Any) -> RequiredTensorsForTrial:
        trial = self.base_trial if trial is None else trial
        for known, required in self._by_trial:
            if known is trial:
                return required
        raise ValueError("not a trial of this rule; pass it in other_trials")

    def add(self, name: str, steps: Iterable[int], trial: Any = None, should_match_regex: bool = False) -> None:
        """See RequiredTensorsForTrial.add."""
        self._of(trial).add(name, steps, should_match_regex)

    def get(self, trial: Any = None) -> list[Any]:
        """The trial's tensors that are needed."""
        return self._of(trial).get()

    def get_names(self, trial: Any = None) -> list[str]:
        """Their names, sorted."""
        return self._of(trial).get_names()

    def get_tensor_steps(self, name: str, trial: Any = None) -> list[int] | None:
        """Steps at which one is needed; None: it is not."""
        return self._of(trial).get_tensor_steps(name)

    def clear(self) -> None:
        """Nothing is needed any more, of any trial."""
        for _, required in self._by_trial:
            required.clear()

    def fetch(self) -> None:
        """Waits for the steps and reads every value once."""
        for _, required in self._by_trial:
            required.fetch()


class Actions:
    """What `action_str` asks for, as JSON: one object or a list, each with a `name`.

    Reported only: stopping and telling people is done by whoever watches the run (`tdbg run --on-issue stop`,
    `exec:`, `webhook:`), so that a rule never acts behind its user's back (docs/migrating-from-smdebug.md).

    :raises json.JSONDecodeError: not JSON
    """

    KNOWN: ClassVar[dict[str, tuple[str, ...]]] = {
        "stoptraining": ("training_job_prefix",), "email": ("endpoint",), "sms": ("endpoint",)}

    def __init__(self, actions_str: str | None = "", rule_name: str = "") -> None:
        self.rule_name = rule_name
        self.actions: list[dict[str, Any]] = []
        if actions_str is None or not actions_str.strip():
            return
        document = json.loads(actions_str)
        for item in document if isinstance(document, list) else [document]:
            name = str(item.get("name", "")).lower() if isinstance(item, dict) else ""
            missing = [key for key in self.KNOWN.get(name, ()) if key not in item]
            if name not in self.KNOWN or missing:
                what = f"no {missing[0]}" if missing else f"names are {', '.join(self.KNOWN)}"
                _logger.warning("rule %s: action %r is skipped: %s", rule_name, item, what)
                continue
            self.actions.append(item)

    def invoke(self, rule_name: str = "") -> None:
        """Says in the log that each was asked for."""
        for action in self.actions:
            _logger.warning("rule %s fired; its action %s is left to the watcher (--on-issue)",
                            rule_name or self.rule_name, json.dumps(action))


class Rule(ABC):
    """A condition that is looked at step by step.

    >>> class Grows(Rule):
    ...     def invoke_at_step(self, step):
    ...         return self.base_trial.tensor("conv1.weight").value(step).max() > 5
    >>> invoke_rule(Grows(trial), raise_eval_cond=True)
    Traceback (most recent call last):
    tdbg.compat.exceptions.RuleEvaluationConditionMet: Evaluation of the rule Grows at step 2 resulted in ...

    :param base_trial: the trial that is judged
    :param action_str: see Actions
    :param other_trials: further trials that the rule compares with
    """

    def __init__(self, base_trial: Any, action_str: Any = "", other_trials: Iterable[Any] | None = None) -> None:
        if action_str is not None and not isinstance(action_str, str):
            # Rules written before there were actions hand other_trials over here.
            action_str, other_trials = "", action_str
        self.base_trial = base_trial
        self.other_trials = list(other_trials or [])
        self.trials = [base_trial, *self.other_trials]
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        self.logger = _logger
        self.rule_name = type(self).__name__
        self.report: dict[str, Any] = {"RuleTriggered": 0, "Violations": 0, "Details": {}, "Datapoints": 0,
                                       "RuleParameters": ""}
        self._actions = Actions(action_str, self.rule_name)

    def set_required_tensors(self, step: int) -> None:  # noqa: B027 - nothing is needed by default
        """Optional: says with `self.req_tensors.add` what is needed at `step`, which is fetched before it is judged."""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """True if the condition is met at this global step."""

    def invoke(self, step: int) -> None:
        """Waits for `step` and judges it.

        :raises RuleEvaluationConditionMet: the condition is met (after the actions)
        """
        self.base_trial.wait_for_steps([step])
        with _still(self.trials):
            self.req_tensors.clear()
            self.set_required_tensors(step)
            self.req_tensors.fetch()
            met = self.invoke_at_step(step)
        if met:
            self._actions.invoke(self.rule_name)
            raise RuleEvaluationConditionMet(self.rule_name, step)


def invoke_rule(rule_obj: Any, start_step: int | None = 0, end_step: int | None = None,
                raise_eval_cond: bool = False) -> None:
    """Asks `rule_obj` at start_step, start_step + 1, ... below end_step (None: until the training's data end).

    What was not saved is passed over. The end of the data raises NoMoreData, as it does in smdebug; so does
    everything else that a rule raises.

    :param raise_eval_cond: a met condition is raised (RuleEvaluationConditionMet); else the rule is asked on
    """
    step = start = 0 if start_step is None else int(start_step)
    met = False
    _logger.info("Started execution of rule %s at step %s", rule_obj.rule_name, start)
    while end_step is None or step < end_step:
        try:
            rule_obj.invoke(step)
        except (TensorUnavailableForStep, StepUnavailable, _NoTensor) as missing:
            _logger.debug("rule %s: %s", rule_obj.rule_name, missing)
        except RuleEvaluationConditionMet as condition:
            if raise_eval_cond:
                raise
            met = True
            if condition.end_of_rule:
                break
        except NoMoreProfilerData:
            break
        step += 1
    _logger.info("Ended execution of rule %s at end_step %s; its condition was %smet", rule_obj.rule_name, step,
                 "" if met else "not ")
