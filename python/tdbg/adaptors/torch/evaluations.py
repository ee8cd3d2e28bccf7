"""Forwards in evaluation mode: which of them are EVAL steps, which are a part of a training step, and when that is
known.

    without gradients        an EVAL step of its own, at once with gradients           undecided: training, if backward
    comes (fine-tuning in evaluation mode), else an evaluation while gradients          an evaluation, held until the
    training step is over: a TRAIN step is one step of the optimizer, whatever accumulate               is evaluated in
    the middle of it beside the training      between a training forward and its backward, inside a closure, between the
    steps of two optimizers, or
                             of a copy that nothing trains: an EVAL step only if it has a loss; held likewise

What modules gave in a forward whose step is not there yet is copied, MAX_KEPT bytes at most.
"""
from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ..steps import EVAL, PREDICT, TRAIN
from ..structure import first
from .graph import reaches
from .modules import Kept

if TYPE_CHECKING:
    from .session import Session

MAX_HELD = 4096
MAX_UNDECIDED = 8           # a script that keeps the graphs of more forwards than this differentiates none of them
MAX_KEPT = 256 << 20        # bytes of outputs that wait for their step


class Evaluation:
    """One root forward in evaluation mode."""

    __slots__ = ("said", "inferring", "beside", "sure", "module", "output", "losses", "batch", "fed", "kept")

    def __init__(self, said: int | None, beside: bool, sure: bool, module: int) -> None:
        self.said = said                # the mode that the script said
        self.inferring = torch.is_inference_mode_enabled()
        self.beside = beside
        self.sure = sure                # a step, whether a loss was computed or not
        self.module = module            # id()
        self.output: Any = None    # weak: what it gave, where that can be differentiated
        self.losses: list[Any] = []    # once it is over
        self.batch: Any = None    # of Context.batch_of
        self.fed: Any = None      # of Context.evaluated
        self.kept: Kept | None = None  # outputs that wait for its step

    def kind(self) -> int:
        """EVAL, or PREDICT where the script said so, or computed no loss in torch's inference mode."""
        if self.said is not None and self.said in (EVAL, PREDICT):
            return self.said
        return PREDICT if self.inferring and not self.losses else EVAL

    def may_train(self) -> bool:
        return self.output is not None and self.output() is not None


class Evaluations:
    """Of one session. `evaluating`: the last root forward was an evaluation's, and its step is not closed;
    `differentiates`: and what it gives may be trained on."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.evaluating = self.differentiates = False
        self.held: list[Evaluation] = []    # ran while a TRAIN step was open
        self._current: Evaluation | None = None
        self._undecided: list[Evaluation] = []  # before it, with gradients that somebody still holds
        self._arm_after: bool | None = None    # were modules armed before an evaluation beside the training?
        self._kept_bytes = [0]

    # Forwards -----------------------------------------------------------------------------------------------

    def begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], twin: bool) -> None:
        session, grad = self.session, torch.is_grad_enabled()
        sure = not grad and not twin and self._accumulates()
        beside = twin or sure or self._runs_beside(grad)
        current = self._current = Evaluation(session.mode_wanted, beside, sure, id(module))
        self.evaluating, self.differentiates = True, grad and not beside
        if not session.idle[EVAL] or (self.differentiates and not session.idle[TRAIN]):
            current.batch = session.context.batch_of(args, kwargs)
            current.fed = session.context.evaluated(args, kwargs)
        if session.modules.active:
            self._begin_outputs(current, grad)

    def _begin_outputs(self, current: Evaluation, grad: bool) -> None:
        session, modules = self.session, self.session.modules
        if current.beside:
            if session.clock.mode == TRAIN:
                self._arm_after = bool(modules.armed)
                if current.sure or current.module in session.trained:
                    self._keep(current, not session.idle[EVAL])
                elif grad and session.optimizers.runs_closure:
                    modules.arm(session.clock.due)
                    self._arm_after = session.clock.due
        elif grad:
            self._keep(current, not (session.idle[EVAL] and session.idle[TRAIN]))
        else:                             # whether a loss will follow is not known yet
            modules.arm(session.clock.evaluate(PREDICT if session.mode_wanted == PREDICT else EVAL))

    def _keep(self, current: Evaluation, wanted: bool) -> None:
        """What modules give from now on is copied for this evaluation."""
        modules = self.session.modules
        modules.arm(wanted)
        if wanted:
            current.kept = modules.kept = Kept(self._kept_bytes, MAX_KEPT)

    def ended(self, output: Any) -> None:
        """The root's forward is over."""
        session, current = self.session, self._current
        if current is None:
            return                  # backward or an optimizer's step inside the forward has said what it is
        if current.beside:
            session.modules.kept = None
        value = output if type(output) is torch.Tensor else first(torch.Tensor, (output,))
        if self.differentiates:
            if value is not None and value.requires_grad:
                current.output = weakref.ref(value)
            elif value is not None:
                self.differentiates = False       # a frozen model
        if not session.losses.eval and not current.beside:
            session.losses.of_evaluation(output)
        if self._arm_after is not None:
            session.modules.arm(self._arm_after)
            self._arm_after = None

    def _runs_beside(self, grad: bool) -> bool:
        """Is an evaluation that begins now a part of the training iteration (a teacher, a target network)? It is
        between a training forward and its backward or inside a closure, and may be between the steps of two optimizers
        of one step."""
        session = self.session
        if session.mode_wanted is not None:
            return False
        return (session.clock.waits() or session.optimizers.runs_closure or session.awaits_backward()
                or (not grad and any(e.may_train() for e in self._undecided)))

    def _accumulates(self) -> bool:
        """Is a TRAIN step open in which backward ran, and no optimizer has stepped?"""
        clock = self.session.clock
        return clock.mode == TRAIN and self.session.losses.micro > 0 and not clock.stepped

    # What becomes of them -----------------------------------------------------------------------------------

    def close(self, next_evaluates: bool = False) -> None:
        """What ran last is over. `next_evaluates`: and another forward in evaluation mode begins: what somebody may
        still differentiate waits."""
        if self.session.forward is not None:
            return
        self._take_current()
        while self._undecided and not (next_evaluates and self._undecided[0].may_train()
                                       and len(self._undecided) < MAX_UNDECIDED):
            self._over(self._undecided.pop(0))

    def differentiated(self, tensors: Sequence[torch.Tensor]) -> None:
        """backward() is about to run on `tensors`: what it reaches was training, whatever its mode. So was the forward
        that ran last, if it can be differentiated; nobody looks whether it is reached."""
        if self._current is None and not self._undecided:
            return
        last = self._current if self.differentiates else None
        self._take_current()
        pending, self._undecided = self._undecided, []
        training = [e for e in pending if e is last or (e.may_train() and reaches(tensors, e.output().grad_fn))]
        for evaluation in pending:
            if evaluation not in training:
                self._over(evaluation)
        session = self.session
        if last in training:
            session.context.modes.trains()
        for evaluation in training:
            session.losses.train.extend(evaluation.losses)
            session.context.take_batch(evaluation.batch)
        if not training or not session.modules.active:
            return
        due = session.clock.train()
        for evaluation in training:
            session.trained.add(evaluation.module)
            if evaluation.kept is not None:
                session.modules.put_kept(evaluation.kept, due)
        session.modules.arm(due)

    def _take_current(self) -> None:
        """The last forward is over, and what it was is still to be said."""
        current, self._current = self._current, None
        self.evaluating = self.differentiates = False
        if current is None:
            return
        current.losses = self.session.losses.take_eval()
        if current.kept is not None:
            self.session.modules.kept = None
            if not current.beside:
                self.session.modules.arm(False)
        self._undecided.append(current)

    def _over(self, evaluation: Evaluation) -> None:
        """It was an evaluation: a step, unless it was nothing but a part of the training."""
        clock, losses = self.session.clock, evaluation.losses
        if evaluation.beside and not evaluation.sure:
            if clock.mode != TRAIN:
                if losses:
                    self._put(evaluation)
                return
            if not losses and not clock.waits():
                return
        elif not self._accumulates() and not (evaluation.sure and clock.mode == TRAIN):
            self._put(evaluation)
            return
        else:
            evaluation.sure = True
        self.held.append(evaluation)
        if len(self.held) >= MAX_HELD:       # no loop evaluates so often within one step: the step is over
            clock.close()

    def between_optimizers(self) -> None:
        """An optimizer is about to step. Of what ran between two optimizers of the open step only what had a loss was
        an evaluation; where the optimizer opened a step of its own, nothing is held any more."""
        self.held = [held for held in self.held if held.losses or held.sure]

    def put_held(self) -> None:
        """The TRAIN step is over."""
        held, self.held = self.held, []
        for evaluation in held:
            self._put(evaluation)

    def _put(self, evaluation: Evaluation) -> None:
        session = self.session
        due = session.clock.due if session.clock.evaluates else session.clock.evaluate(evaluation.kind())
        if evaluation.kept is not None:
            session.modules.put_kept(evaluation.kept, due)
        if due:
            session.losses.put_eval(evaluation.losses)
            session.context.add_batch(evaluation.batch or ())
            session.context.add_fed(evaluation.fed)
            session.context.flush()
        session.context.discard()
        session.clock.close()
