"""What people report, each with the answer known: branches that `where` leaves out in the forms in which they are
written, two models in a step, weights that the script wrote to. A cause that is named must be the cause."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

inf, nan = float("inf"), float("nan")
FAULT_AT, STEPS = 3, 6


def model():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))


def batch():
    return torch.randn(16, 6)


def entropy(output):
    return F.cross_entropy(output, torch.arange(len(output)) % 4)


def said_of(watch, body):
    torch.manual_seed(0)
    session = watch()
    body()
    session.finish("closed")
    return [record for _, record in session.made[0].contexts.get("nan_origin", [])]


def one_model(loss_of, optimizer=torch.optim.SGD, before=lambda net, on: None):
    """`loss_of(output, is the fault on?)`, `before(net, is the fault on?)`."""
    net = model()
    update = optimizer(net.parameters(), lr=0.01)
    for step in range(STEPS):
        on = step == FAULT_AT
        before(net, on)
        update.zero_grad()
        loss_of(net(batch()), on).backward()
        update.step()


def set_items(values, kept):
    values = values.clone()
    values[~kept] = 0.0
    return values


FORMS = {
    "where": lambda f, z, kept: torch.where(kept, f(z), torch.zeros_like(z)),
    "method": lambda f, z, kept: f(z).where(kept, torch.zeros_like(z)),
    "masked_fill": lambda f, z, kept: f(z).masked_fill(~kept, 0.0),
    "product": lambda f, z, kept: f(z) * kept,
    "nan_to_num": lambda f, z, kept: torch.nan_to_num(f(z), posinf=0.0, neginf=0.0),
    "index": lambda f, z, kept: f(z)[kept],
    "set items": lambda f, z, kept: set_items(f(z), kept),
}
#: operation, how it is written, what it is given in the step with the fault
TRAPS = {
    "sqrt of negative": ("sqrt", torch.sqrt, lambda z: z),
    "sqrt of zero": ("sqrt", torch.sqrt, lambda z: z * (z > 0)),
    "log of zero": ("log", torch.log, lambda z: z * (z > 0)),
    "pow of zero": ("pow", lambda z: z ** 0.5, lambda z: z * (z > 0)),
    "division by zero": ("reciprocal", lambda z: 1 / z, lambda z: z * (z > 0)),
    "own norm": ("sqrt", lambda z: (z ** 2).sum(1, keepdim=True).sqrt().expand_as(z), lambda z: z * 0),
}


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("form", FORMS)
def test_the_branch_that_is_left_out_is_named_once(watch, form, trap):
    operation, function, faulty = TRAPS[trap]

    def loss_of(output, on):
        z = output.tanh()
        z = faulty(z) if on else z.abs() + 0.5
        return FORMS[form](function, z, z > 0).sum()

    (record,) = said_of(watch, lambda: one_model(loss_of))
    assert (record["what"], record["operation"]) == ("operation", operation), record["sentence"]


def test_a_norm_at_zero_has_a_derivative(watch):
    assert said_of(watch, lambda: one_model(lambda o, on: (o * (not on)).norm(dim=1).sum())) == []


def weighted(output, on):
    counts = torch.tensor([1.0, 1.0, 1.0, 0.0]) if on else torch.ones(4)
    return F.cross_entropy(output, torch.arange(len(output)) % 4, weight=1 / counts)


def masked_mean(output, on):
    losses, mask = F.cross_entropy(output, torch.arange(16) % 4, reduction="none"), torch.ones(16) * (not on)
    return (losses * mask).sum() / mask.sum()


def own_binary(output, on):
    p, y = torch.sigmoid(output * (1e4 if on else 1)), torch.zeros_like(output)
    return -(y * p.log() + (1 - y) * (1 - p).log()).mean()


def own_entropy(output, on):
    p = torch.softmax(output * (1e4 if on else 1), 1)
    return -(F.one_hot(torch.arange(16) % 4, 4) * p.log()).sum(1).mean()


def normalised(output, on):
    output = output[:1] if on else output
    return ((output - output.mean(0)) / (output.var(0) + 1e-5).sqrt()).pow(2).mean() + output.sum()


def variational(output, on):
    mean, log_variance = output[:, :2], output[:, 2:] * (1e4 if on else 1)
    z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
    return F.mse_loss(z, torch.zeros_like(z)) - 0.5 * (1 + log_variance - mean ** 2 - log_variance.exp()).mean()


def halved(output, on):
    output = output.half() * (300 if on else 1)
    return (output * output).sum().float()


def cosine(output, on):
    output = output * (not on)
    unit = output / output.norm(dim=1, keepdim=True)
    return (unit @ unit.t()).mean()


REPORTS = {
    "weights of classes from counts": (weighted, "constant", "nll_loss", "1 of its 4 elements is infinite"),
    "mean over no tokens": (masked_mean, "operation", "div", "it divided by 0"),
    "binary cross entropy of one's own": (own_binary, "operation", "log", "that it was given are 0"),
    "cross entropy of one's own": (own_entropy, "operation", "log", "that it was given are 0"),
    "normalised by the variance of one": (normalised, "operation", "var", "it was taken of 1 value and divides by n - 1"),
    "exp of a log variance": (variational, "operation", "exp", "where exp leaves float32"),
    "sum in half precision": (halved, "operation", "sum", "its result is larger than float16 holds (65,504)"),
    "cosine of nothing": (cosine, "operation", "div", "that it divided by are 0"),
}


@pytest.mark.parametrize("name", REPORTS)
def test_what_people_report(watch, name):
    loss_of, what, operation, words = REPORTS[name]
    (record,) = said_of(watch, lambda: one_model(loss_of))
    assert (record["what"], record["operation"]) == (what, operation) and words in record["sentence"], record["sentence"]


# Weights that the script wrote to ----------------------------------------------------------------------------------------


def poke(net, on):
    if on:
        net[2].weight.data[0] = nan


def load(net, on):
    if on:
        state = {name: value.clone() for name, value in net.state_dict().items()}
        state["2.weight"][1] = nan
        net.load_state_dict(state)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("before", [poke, load])
def test_a_nan_that_no_update_makes_is_the_scripts(watch, before, optimizer):
    record, *_ = said_of(watch, lambda: one_model(lambda o, on: entropy(o), optimizer, before))
    assert (record["name"], record["update"]["by"]) == ("Sequential_2.weight", "script")
    assert record["sentence"].endswith(f"an update of {optimizer.__name__} makes no NaN: the script wrote to it since, or loaded it")


@pytest.mark.parametrize("optimizer", [
    lambda p, lr: torch.optim.Adam(p, lr, eps=0.0), lambda p, lr: torch.optim.SGD(p, lr, momentum=nan), torch.optim.RMSprop])
def test_where_an_update_could_have_made_it_both_are_said(watch, optimizer):
    record, *_ = said_of(watch, lambda: one_model(lambda o, on: entropy(o), optimizer, poke))
    assert record["update"]["by"] != "script"


def test_where_an_infinity_became_nan_is_no_view(watch):
    def infinite(net, on):
        if on:
            net[0].weight.data.fill_(inf)

    record, *_ = said_of(watch, lambda: one_model(lambda o, on: entropy(o), before=infinite))
    assert record["became_nan"] == "the infinity became NaN in a matrix product (addmm), in layer 0"


def test_gradients_that_the_script_spoils_are_not_said_to_be_the_backwards(watch):
    def body():
        net = model()
        update = torch.optim.SGD(net.parameters(), lr=0.01)
        for step in range(STEPS):
            update.zero_grad()
            loss = entropy(net(batch())) * (step != FAULT_AT)
            loss.backward()
            total = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
            for p in net.parameters():
                p.grad.div_(total)
            update.step()

    record, *_ = said_of(watch, body)
    assert record["what"] == "unseen" and "or in what was done to the gradients since" in record["sentence"]


# Two models in a step -----------------------------------------------------------------------------------------------------


def two_models(losses):
    """`losses(first, second, on)`: what is differentiated, one after the other, before both optimizers step."""
    first, second = model(), model()
    updates = [torch.optim.SGD(first.parameters(), 0.01), torch.optim.Adam(second.parameters(), 0.02)]
    for step in range(STEPS):
        for update in updates:
            update.zero_grad()
        for loss in losses(first, second, step == FAULT_AT):
            loss.backward()
        for update in updates:
            update.step()


def apart(first, second, on):
    return [entropy(first(batch())), torch.sqrt((second(batch()) * (not on)) ** 2).sum()]


def apart_the_other_way(first, second, on):
    return apart(second, first, on)


def summed(first, second, on):
    return [entropy(first(batch())) + torch.log(second(batch()).abs() + (-9 if on else 1)).mean()]


@pytest.mark.parametrize("losses, direction, operation", [
    (apart, "backward", "sqrt"), (apart_the_other_way, "backward", "sqrt"), (summed, "forward", "log")])
def test_of_two_models_the_one_is_named(watch, losses, direction, operation):
    (record,) = said_of(watch, lambda: two_models(losses))
    assert (record["direction"], record["what"], record["operation"]) == (direction, "operation", operation), record["sentence"]
