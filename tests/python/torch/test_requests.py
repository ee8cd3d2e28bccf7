"""What a running training does when it is asked: a checkpoint of the script's own, more detail for a while."""

import json

import pytest
import torch
from torch import nn

from tdbg import checkpoint


@pytest.fixture
def hooks():
    before, checkpoint._hooks[:] = list(checkpoint._hooks), []
    yield checkpoint
    checkpoint._hooks[:] = before


def train(steps, ask=None, session=None):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        nn.functional.mse_loss(model(torch.ones(4, 2)), torch.zeros(4, 1)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 0 and ask:
            session.made[0].requests.append(json.dumps(ask))


def test_a_checkpoint_is_saved_between_steps_and_answered(watch, hooks):
    session = watch()
    saved = []
    hooks.on_checkpoint(lambda: saved.append(session.made[0].open is None))
    train(4, {"id": "7", "action": "checkpoint"}, session)
    assert saved == [True], "once, and with no step open"
    assert session.made[0].contexts["checkpoint"][-1][-1] == {"id": "7", "error": ""}


def test_a_checkpoint_that_fails_is_said_and_training_goes_on(watch, hooks, capfd):
    session = watch()

    @hooks.on_checkpoint
    def save():
        raise OSError("no room")

    train(4, {"id": "8", "action": "checkpoint"}, session)
    session.finish("completed")
    assert len(session.made[0].steps) == 4
    assert session.made[0].contexts["checkpoint"][-1][-1]["error"] == "OSError: no room"
    assert "no room" in capfd.readouterr().err


def test_without_a_hook_the_answer_says_so(watch, hooks):
    session = watch()
    train(4, {"id": "9", "action": "checkpoint"}, session)
    assert "on_checkpoint" in session.made[0].contexts["checkpoint"][-1][-1]["error"]


def test_what_is_no_function_is_refused(hooks):
    with pytest.raises(TypeError):
        hooks.on_checkpoint("last.pt")


def test_a_request_for_more_detail_opens_steps_in_which_nothing_else_is_due(watch):
    session = watch(plan={"summaries_every": 0})
    train(3, {"id": "1", "action": "capture", "collections": ["gradients"], "steps": 100}, session)
    assert session._more_until > 0 and session.forecast.more


def test_more_detail_is_gathered_of_a_device_too(watch):
    session = watch(plan={"summaries_every": 0}, force_lane=True)
    train(6, {"id": "1", "action": "capture", "collections": ["gradients"], "steps": 100}, session)
    session.finish("completed")
    steps = session.made[0].steps
    assert not steps[1].values, "nothing is due, and nobody has asked yet"
    assert "gradient/Linear_weight" in {name for name, _, _ in steps[-1].values}
