"""How often steps are looked at: tdbg.adaptors.overhead, with a clock that moves only when it is told to."""

import pytest

from tdbg.adaptors import overhead
from tdbg.adaptors.overhead import FIRST, Overhead


class Training:
    """:param step: seconds of its own. What we add: `looked` in a step that is looked at, `idle` in one that is not."""

    def __init__(self, monkeypatch, share, step, looked, idle=0.0):
        self.now, self.step, self.looked, self.idle = 100.0, step, looked, idle
        monkeypatch.setattr(overhead, "perf_counter", lambda: self.now)
        self.overhead = Overhead(share)
        self.n = 0
        self.changes = []

    def run(self, steps, hidden=False):
        ours = 0.0
        for _ in range(steps):
            took = self.idle if self.n % self.overhead.every else self.looked
            self.now += self.step + took
            self.overhead.spent += took
            ours += took
            if self.overhead.step_ended(hidden):
                self.changes.append((self.n + 1, self.overhead.every))
            self.n += 1
        return ours / (steps * self.step)


def test_the_first_steps_are_looked_at_whatever_that_takes(monkeypatch):
    training = Training(monkeypatch, 0.05, 2e-4, 2e-4)
    training.run(FIRST)
    assert training.overhead.every == 1
    training.run(64)
    assert training.changes[0] == (FIRST + 32, 32), "1 in 20 is 5 %: one in 32"
    assert training.run(4096) <= 0.05


def test_what_fits_stays(monkeypatch):
    training = Training(monkeypatch, 0.05, 1e-2, 4.9e-4)
    training.run(2000)
    assert training.changes == []


def test_longer_steps_are_looked_at_more_often_again(monkeypatch):
    training = Training(monkeypatch, 0.05, 2e-4, 2e-4)
    training.run(1000)
    assert training.overhead.every == 32
    training.step = 0.02
    training.run(10_000)
    assert training.overhead.every == 1


def test_a_pause_of_the_machine_changes_nothing(monkeypatch):
    training = Training(monkeypatch, 0.05, 1e-2, 3e-4)
    training.run(FIRST)
    for _ in range(20):
        training.run(40)
        training.looked = 5.0       # in one step we were not let run
        training.run(1)
        training.looked = 3e-4
    assert training.changes == []


def test_what_costs_when_nothing_is_looked_at_is_not_fought_for_ever(monkeypatch):
    training = Training(monkeypatch, 0.05, 4e-3, 5e-3, idle=4e-3)
    training.run(20_000)
    assert training.overhead.every <= 64
    assert len(training.changes) <= 3


@pytest.mark.parametrize("hidden", [True, False])
def test_a_device_that_is_behind_hides_what_the_host_does(monkeypatch, hidden):
    training = Training(monkeypatch, 0.05, 2e-2, 8e-3)
    training.run(1000, hidden=hidden)
    assert (training.overhead.every == 1) == hidden


def test_without_a_limit_everything_is_looked_at(monkeypatch):
    training = Training(monkeypatch, 0, 1e-5, 1.0)
    training.run(2000)
    assert training.changes == []
