"""A training that is held between two steps: who lets it go on, and that it goes on by itself."""

import json
import os
import signal
import threading
import time

import pytest

from tdbg.adaptors.hold import HELD, PAGE, hold
from tdbg.adaptors.requests import obey

SOON = 240          # seconds: far more than anything here takes, for a machine that is busy


class Run:
    def __init__(self, directory):
        self.directory, self.attempt, self.global_step = str(directory), 0, 7
        self.contexts = []
        os.makedirs(directory / "0" / "worker_0")
        (directory / "control").write_bytes(b"TDBGCTRL".ljust(PAGE, b"\0"))

    def put_context(self, topic, text):
        self.contexts.append((topic, json.loads(text)))

    def ask(self, **request):
        with open(os.path.join(self.directory, "control"), "ab") as file:
            file.write(json.dumps(request).encode() + b"\n")
        return request

    @property
    def mark(self):
        return os.path.join(self.directory, "0", "worker_0", HELD)


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def when_held(run, do):
    """Does it on another thread as soon as the run is held; the thread is joined by who asked."""
    seen = []

    def wait():
        end = time.monotonic() + SOON
        while not os.path.exists(run.mark):
            if time.monotonic() > end:
                return
            time.sleep(0.01)
        with open(run.mark) as file:
            seen.append(json.load(file))
        do()
    thread = threading.Thread(target=wait)
    thread.start()
    return thread, seen


@pytest.mark.parametrize("action, why", [("continue", "it was asked to"), ("stop", "the job is asked to stop")])
def test_it_goes_on_when_somebody_asks(run, capfd, action, why):
    pause = run.ask(id="a", action="pause", seconds=SOON * 4, because="x > 1")
    thread, seen = when_held(run, lambda: run.ask(id="b", action=action))
    obey(run, json.dumps(pause))
    thread.join()
    assert seen[0]["after_step"] == 7 and seen[0]["because"] == "x > 1"
    assert not os.path.exists(run.mark)
    assert run.contexts[0][0] == "hold" and run.contexts[0][1]["ended_by"] == why
    assert "held after step 7, for 16 minutes at most: x > 1; tdbg continue" in " ".join(capfd.readouterr().err.split())


def test_it_goes_on_by_itself_though_nobody_is_left_to_ask(run):
    hold(run, run.ask(id="a", action="pause", seconds=0.3))
    assert run.contexts[0][1]["ended_by"] == "the time is over" and run.contexts[0][1]["seconds"] >= 0.3
    assert not os.path.exists(run.mark)


def test_a_rank_that_comes_when_the_others_have_gone_on_is_not_held(run):
    pause = run.ask(id="a", action="pause", seconds=SOON * 4)
    run.ask(id="b", action="continue")
    hold(run, pause, 1, 2)
    late = run.ask(id="c", action="pause", seconds=SOON, at_step=5, wall_nanos=time.time_ns() - 2 * SOON * 10**9)
    hold(run, late, 1, 2)
    assert run.contexts == []


def test_a_continue_from_before_does_not_count(run):
    run.ask(id="b", action="continue")
    hold(run, run.ask(id="a", action="pause", seconds=0.2))
    assert run.contexts[0][1]["ended_by"] == "the time is over"


def test_a_signal_that_the_script_handles_lets_it_go_on(run):
    got = []
    before = signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
    try:
        thread, _ = when_held(run, lambda: os.kill(os.getpid(), signal.SIGUSR1))
        hold(run, run.ask(id="a", action="pause", seconds=SOON * 4))
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert got == [1] and run.contexts[0][1]["ended_by"] == "a signal came"
    assert signal.set_wakeup_fd(-1) == -1


def test_it_is_held_on_another_thread_too(run):
    thread = threading.Thread(target=hold, args=(run, run.ask(id="a", action="pause", seconds=0.2)))
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive() and run.contexts


@pytest.mark.parametrize("seconds", [None, "long", -1, True, float("nan"), [1]])
def test_a_limit_that_is_none_is_the_usual_one(run, seconds):
    thread, seen = when_held(run, lambda: run.ask(id="b", action="continue"))
    hold(run, run.ask(id="a", action="pause", seconds=seconds))
    thread.join()
    assert seen[0]["seconds"] in (600, 1) and run.contexts


def test_lines_that_nobody_of_ours_wrote_are_passed_over(run):
    pause = run.ask(id="a", action="pause", seconds=SOON * 4)

    def litter():
        with open(os.path.join(run.directory, "control"), "ab") as file:
            file.write(b"\xff\xfe{\n[]\n7\n{\"action\": \"continue\"")      # the last one is not complete
        time.sleep(0.3)
        assert os.path.exists(run.mark)
        with open(os.path.join(run.directory, "control"), "ab") as file:
            file.write(b"}\n")
    thread, _ = when_held(run, litter)
    hold(run, pause)
    thread.join()
    assert run.contexts[0][1]["ended_by"] == "it was asked to"
