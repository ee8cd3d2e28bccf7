"""In which thread a training is: one has the run, and what is not seen in another is counted."""

import threading
import time

import torch
from torch import nn

from tdbg.adaptors.steps import EVAL, TRAIN


def one_step(model, optimizer):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
    optimizer.step()


def train(steps=3):
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        one_step(model, optimizer)


def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_other_threads_are_left_alone(watch):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(model, optimizer)
    other = nn.Linear(4, 3)

    def elsewhere():
        one_step(other, torch.optim.SGD(other.parameters(), lr=0.1))

    in_a_thread(elsewhere)
    [run] = session.made
    assert len(run.steps) == 1
    assert [(cause, count) for cause, count, _ in run.lost] == [("unsupported", 1)] and "another thread" in run.lost[0][2]


def test_a_training_goes_on_in_another_thread_when_its_own_is_over(watch):
    session = watch()
    in_a_thread(train)
    in_a_thread(train)
    train()
    [run] = session.made
    assert len(run.steps) == 9 and run.lost == []


def test_a_training_in_a_thread_after_a_look_at_the_model_in_the_main_one(watch):
    session = watch()
    model = nn.Linear(4, 3)
    torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.eval()(torch.ones(1, 4))
    in_a_thread(train)
    [run] = session.made
    assert [step.mode for step in run.steps] == [EVAL] + 3 * [TRAIN] and run.lost == []
    assert all("MSELoss_output_0" in {name for name, *_ in step.values} for step in run.steps[1:]), run.steps[1].values


def test_threads_that_begin_at_once_open_one_run(watch, monkeypatch):
    session = watch()
    opened = session.open_run

    def slowly(**options):
        time.sleep(0.2)
        return opened(**options)

    session.open_run = slowly
    together = threading.Barrier(4)

    def one():
        together.wait()
        train(20)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [run] = session.made
    assert len(run.steps) >= 20


def test_a_training_goes_on_while_another_thread_is_in_a_forward(watch):
    began, over = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x):
            began.set()
            assert over.wait(30)
            return x

    session = watch()
    model, actor = nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), Waits())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session.add_model(actor)
    one_step(model, optimizer)

    def act():
        with torch.no_grad():
            actor(torch.ones(1, 4))

    thread = threading.Thread(target=act)
    thread.start()
    try:
        assert began.wait(30)
        one_step(model, optimizer)
        one_step(model, optimizer)
    finally:
        over.set()
        thread.join()
    one_step(model, optimizer)
    session.finish("closed")
    [run] = session.made
    assert [step.mode for step in run.steps] == 4 * [TRAIN]
    assert [step.scalars.get(("context/batch_size", 0)) for step in run.steps] == 4 * [2.0]


def test_outputs_of_another_threads_forward_are_none_of_the_step(watch):
    class Acts(nn.Module):
        def forward(self, x):
            if threading.current_thread() is threading.main_thread():
                in_a_thread(act)
            return x

    def act():
        with torch.no_grad():
            model[0](torch.zeros(2, 4))

    session = watch(kinds=("output",))
    model = nn.Sequential(nn.Linear(4, 3), Acts(), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    one_step(model, optimizer)
    one_step(model, optimizer)
    session.finish("closed")
    [run] = session.made
    for step in run.steps:
        assert sorted(name for name, *_ in step.values) == ["0_output_0", "1_output_0", "2_output_0", "Sequential_output_0"]
