"""Exceptions that another thread sets in the training's (stopit, func_timeout, Ray's cancel), wherever in our code they
land: they reach the training, and the next step is recorded as if nothing had been."""

import ctypes
import dis
import os
import queue
import sys
import threading

import pytest
import tdbg.adaptors
import torch
from torch import nn

OURS = os.path.dirname(tdbg.adaptors.__file__) + os.sep
#: After which the interpreter looks for what other threads want.
CALLS = {number for name, number in dis.opmap.items()
         if name.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))}


class TimeLimit(Exception):
    pass


class WithWords(Exception):
    def __init__(self, words="took too long"):
        super().__init__(words)


def set_here(kind):
    """What another thread does; the caller's thread has it at its next look."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(kind))


class Moments:
    """Counts the moments in our code at which an exception of another thread may come, and sets one at the `at`th."""

    def __init__(self, kind, at):
        self.kind, self.at, self.seen = kind, at, 0
        self.instructions = {}      # code -> {offset: the instruction before it is one of CALLS}

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self._entered)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def _entered(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._stands

    def _stands(self, frame, event, argument):
        if event == "opcode" and self._is_one(frame.f_code, frame.f_lasti):
            self.seen += 1
            if self.seen == self.at:
                set_here(self.kind)
        return self._stands

    def _is_one(self, code, offset):
        known = self.instructions.get(code)
        if known is None:
            known, after = {}, False
            for instruction in dis.get_instructions(code):
                known[instruction.offset] = after
                after = instruction.opcode in CALLS
            self.instructions[code] = known
        return known.get(offset, False)


SELDOM = ("context/input/", "context/targets/", "context/predictions/")       # looked at in some steps only


def names(step):
    return {*step.values, *(k for k in step.scalars if not k[0].startswith(SELDOM))}


class Training:
    """A small one under watch, whose steps are all alike."""

    def __init__(self, session):
        self.session = session
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.loss = None

    def step(self):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(torch.randn(4, 6)), torch.randn(4, 1))
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()

    def is_cut_short(self, kind, at):
        """A step; False if it has no `at`th moment."""
        moments = Moments(kind, at)
        try:
            with moments:
                self.step()
        except kind:
            return True
        assert moments.seen < at, "it did not reach the training"
        return False


def interrupt(session, kind, every):
    """Cuts a step short at every `every`th moment that there is."""
    training = Training(session)
    for _ in range(3):
        training.step()
    run = session.made[0]
    begin = run.begin_step
    run.begin_step = lambda mode: (run.end_step(), begin(mode))[1]      # which the real one does with an open one
    whole, at = names(run.steps[-1]), 1
    while training.is_cut_short(kind, at):
        run.steps.clear()
        training.step()     # may have in it what the other has left: a backward without an update
        training.step()
        last = run.steps[-1]
        assert len(run.steps) in (2, 3) and names(last) == whole, at
        assert last["MSELoss_output_0"] == pytest.approx(training.loss), at
        assert session._mode_steps[1] == run.modes[1], at
        at += every
    return at - every


@pytest.mark.parametrize("kind, every", [(TimeLimit, 31), (MemoryError, 67), (StopIteration, 61), (queue.Empty, 53)])
def test_an_exception_of_another_thread_reaches_the_training_and_the_next_step_is_whole(watch, capsys, kind, every):
    session = watch(strict=False)
    assert interrupt(session, kind, every) > 300
    assert session.listening and "could not capture" not in capsys.readouterr().err
    assert {(cause, f"training's own exception: {kind.__name__}" in text) for cause, _, text in session.made[0].lost} == {
        ("adaptor_error", True)}


@pytest.mark.long
@pytest.mark.parametrize("lane", [False, True], ids=["run", "lane"])
@pytest.mark.parametrize("kind", [TimeLimit, WithWords, TimeoutError, KeyboardInterrupt, MemoryError, StopIteration, queue.Empty])
def test_wherever_it_lands_the_training_has_it_and_the_next_step_is_whole(watch, capsys, kind, lane):
    session = watch(strict=False, force_lane=lane)
    assert interrupt(session, kind, every=1) > 300
    assert session.listening and "could not capture" not in capsys.readouterr().err
