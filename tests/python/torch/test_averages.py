"""Copies of a model that nothing trains, evaluated in its place (EMA): as in test_loops.py, each loop says what it did."""

import copy

import pytest
import torch
import torch.nn.functional as F
from test_loops import MSE, batch, compare, net, sgd, update, weights
from torch import nn

from tdbg.adaptors.steps import EVAL, TRAIN


def averaged(early):
    """An average of the weights, which is evaluated in the model's place; made before the optimizer, or after it."""
    model = net()
    average = copy.deepcopy(model).eval() if early else None
    optimizer, seen = sgd(model), []
    average = average or copy.deepcopy(model).eval()
    for n in range(3):
        seen.append((TRAIN, {MSE + "_0": update(optimizer, F.mse_loss(model(batch(n)), torch.ones(4, 2)))}))
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters()):
                mine.lerp_(theirs, 0.5)
            average(batch(n))                        # for nothing but its result
            for k in range(2):
                seen.append((EVAL, {MSE + "_0": F.mse_loss(average(batch(k)), torch.ones(4, 2)).item()}))
    return seen, weights(model, average)


@pytest.mark.parametrize("early", [True, False])
def test_an_average_of_the_model_is_evaluated(watch, early):
    bare = averaged(early)
    session = watch()
    seen, left = averaged(early)
    session.finish("completed")
    assert (seen, left) == bare
    compare(session.made[0], seen)


def copied_and_evaluated(make, times=1):
    """A fresh copy for each evaluation, which is over before the next step begins."""
    model = net()
    optimizer, seen = sgd(model), []
    for n in range(12):
        seen.append((TRAIN, {MSE + "_0": update(optimizer, F.mse_loss(model(batch(n)), torch.ones(4, 2)))}))
        if n % 3 == 2:
            continue                                 # and none is evaluated
        for average in [make(model).eval() for _ in range(times)]:
            with torch.no_grad():
                seen.append((EVAL, {MSE + "_0": F.mse_loss(average(batch(99)), torch.ones(4, 2)).item()}))
    return seen, weights(model)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("make", [copy.deepcopy, torch.optim.swa_utils.AveragedModel], ids=["deepcopy", "AveragedModel"])
def test_a_copy_that_is_evaluated_at_once(watch, make, times):
    bare = copied_and_evaluated(make, times)
    session = watch()
    seen, left = copied_and_evaluated(make, times)
    assert not nn.modules.module._global_forward_pre_hooks or seen[-1][0] == EVAL
    session.finish("completed")
    assert (seen, left) == bare and not nn.modules.module._global_forward_pre_hooks
    compare(session.made[0], seen)


def test_what_is_copied_and_not_evaluated_is_looked_for_until_the_training_goes_on(watch):
    session, model = watch(), net()
    optimizer = sgd(model)
    update(optimizer, model(batch(0)).sum())
    kept = copy.deepcopy(model)
    assert len(nn.modules.module._global_forward_pre_hooks) == 1
    torch.nn.Linear(3, 2)(batch(1))
    update(optimizer, model(batch(1)).sum())
    assert not nn.modules.module._global_forward_pre_hooks and not kept._forward_hooks or kept in session.entries.twins
    assert len(session.made[0].steps) == 2
