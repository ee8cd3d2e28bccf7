"""Where a NaN was born: what is said of trainings with one fault each, and that nothing is said of their healthy twins.

Each case trains a small model for four steps; the fault comes in the third, so that there is a finite step before it.
"""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tdbg.adaptors.torch.origin import backward, graph

FAULT_AT = 2
STEPS = 4
inf, nan = float("inf"), float("nan")


class Net(nn.Module):
    """l1, l2, `middle` (given whether the fault is on), head."""

    def __init__(self, middle=lambda h, on: h, head=None):
        super().__init__()
        self.l1, self.l2, self.head = nn.Linear(6, 8), nn.Linear(8, 8), head or nn.Linear(8, 4)
        self.middle, self.on = middle, False

    def forward(self, x):
        return self.head(self.middle(torch.relu(self.l2(torch.relu(self.l1(x)))), self.on))


def entropy(output, on):
    return F.cross_entropy(output, torch.arange(len(output)) % 4)


class Case:
    """:param where: words of the place; the layer's name alone where it is inside of one
    :param fault: called with (model, x) before the forward of the step with the fault; returns x
    :param loss: (output, is the fault on?)
    """

    def __init__(self, what, operation="", where="", middle=None, loss=entropy, fault=None, name=None, model=None, says=(), rows=16,
                 run=None, optimizer=None):
        self.what, self.operation, self.where, self.name, self.says = what, operation, where, name, says
        self.model = model or (lambda: Net(middle) if middle else Net())
        self.loss, self.fault, self.rows, self.run, self.optimizer = loss, fault, rows, run, optimizer


def between(h, x, on):
    return h + x if on else h


class Doubtful(torch.autograd.Function):
    """A custom function whose forward divides by what it is given."""

    @staticmethod
    def forward(ctx, x, on):
        return x / (x * 0) if on else x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class DoubtfulBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, on):
        ctx.on = on
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (nan if ctx.on else 2), None


def attention(h, on):
    """All is masked in the first three rows."""
    scores = h @ h.t()
    mask = torch.ones_like(scores, dtype=torch.bool).triu(1)
    if on:
        mask[:3] = True
    return torch.softmax(scores.masked_fill(mask, -inf), -1) @ h


def additive_attention(h, on):
    mask = torch.zeros(len(h), len(h))
    mask.masked_fill_(torch.ones_like(mask, dtype=torch.bool).triu(1), -inf)
    if on:
        mask[:3] = -inf
    return torch.softmax(h @ h.t() + mask, -1) @ h


def poison(name, value=nan):
    def fault(model, x):
        with torch.no_grad():
            dict(model.state_dict(keep_vars=True))[name].view(-1)[3] = value
        return x
    return fault


def poisoned_input(model, x):
    x[5, 2] = nan
    return x


def mse(target):
    def loss(output, on):
        labels = torch.zeros_like(output)
        if on:
            labels[1, 1] = target
        return F.mse_loss(output, labels)
    return loss


def own_mse(output, on):
    return ((output - torch.full_like(output, nan if on else 0.5)) ** 2).mean()


def ignored(output, on):
    return F.cross_entropy(output, torch.full((len(output),), -100 if on else 1))


def masked_logits(output, on):
    labels = torch.arange(len(output)) % 4
    mask = F.one_hot((labels + (0 if on else 1)) % 4, 4).bool()
    return F.cross_entropy(output.masked_fill(mask, -inf), labels)


def own_bce(output, on):
    p = torch.sigmoid(output)
    if on:
        p = p * (p > 2)
    return -torch.log(p).mean()


def left_out(operation, function, at, shift, says):
    """A loss that leaves out, by `where`, what `function` cannot take: in the step with the fault, what was moved by
    `shift`."""
    def loss(output, on):
        z = at + 0.1 * output.tanh() + shift * on
        return torch.where(torch.full_like(z, not on).bool(), function(z), z).mean()
    return Case("operation", operation, END, loss=loss, says=says)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head, self.on = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4), False

    def forward(self, x):
        out, _ = self.lstm(x.unsqueeze(1).expand(-1, 3, -1))
        return self.head(out[:, -1])


class Embedded(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.l1, self.head, self.on = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 4), False

    def forward(self, x):
        return self.head(torch.relu(self.l1(self.words((x.abs() * 3).long().clamp(0, 9)[:, 0]))))


class Normed(nn.Module):
    """In evaluation mode, as a frozen batch norm is."""

    def __init__(self):
        super().__init__()
        self.l1, self.norm, self.head, self.on = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4), False
        self.norm.eval()

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.l1(x))))


class Checkpointed(Net):
    def __init__(self, reentrant):
        super().__init__(lambda h, on: h)
        self.reentrant = reentrant

    def forward(self, x):
        def segment(h):
            return torch.log(h * (0 if self.on else 1) + (0 if self.on else 3)) * h
        h = torch.relu(self.l2(torch.relu(self.l1(x))))
        return self.head(checkpoint(segment, h, use_reentrant=self.reentrant))


def half(middle):
    return lambda h, on: middle(h.half(), on).float()


def spread(h, on):
    return h + (h[:1] if on else h).std(0)


def penalised(output, on):
    """Double backward: the penalty of a gradient's length, which is 0 where all is 0."""
    x = torch.full((4, 3), 0.0 if on else 1.0, requires_grad=True)
    (g,) = torch.autograd.grad((x ** 2 * output.mean()).sum(), x, create_graph=True)
    return entropy(output, on) + g.pow(2).sum(1).sqrt().mean()


def two_losses(case_loss):
    def run(model, optimizer, x, on):
        output = model(x)
        torch.autograd.backward([entropy(output, False), case_loss(output, on)])
    return run


def accumulated(model, optimizer, x, on):
    model.on = 0
    entropy(model(x), 0).backward()
    model.on = on
    entropy(model(x), on).backward()


def clipped(model, optimizer, x, on):
    entropy(model(x), on).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)


MIDDLE = "between l2 and head"
END = "between head and the loss"

FORWARD = {
    "log of zero": Case("operation", "log", MIDDLE, lambda h, on: torch.log(h if on else h + 1), says=("of the 128 values that it was given are 0",)),
    "log of negative": Case("operation", "log", MIDDLE, lambda h, on: torch.log(h + 1 - 9 * on), says=("128 of the 128 values", "negative")),
    "log1p": Case("operation", "log1p", MIDDLE, lambda h, on: torch.log1p(h - on)),
    "sqrt of negative": Case("operation", "sqrt", MIDDLE, lambda h, on: (h + 1 - 9 * on).sqrt(), says=("negative",)),
    "rsqrt of zero": Case("operation", "rsqrt", MIDDLE, lambda h, on: (h + 1 - on).rsqrt(), says=("are 0",)),
    "division by zeros": Case("operation", "div", MIDDLE, lambda h, on: h / (h * (not on) + 1 - on), says=("divided by are 0",)),
    "division by a number": Case("operation", "div", MIDDLE, lambda h, on: h / (0.0 if on else 2.0), says=("divided by 0",)),
    "power": Case("operation", "pow", MIDDLE, lambda h, on: (h + 1 - 9 * on) ** 0.5, says=("power of 0.5", "negative")),
    "power overflow": Case("operation", "pow", MIDDLE, lambda h, on: (h * (1e25 if on else 1)) ** 2, says=("float32 holds",)),
    "acos": Case("operation", "acos", MIDDLE, lambda h, on: torch.acos(h.clamp(max=0.5) + 2 * on), says=("outside of -1 to 1",)),
    "atanh": Case("operation", "atanh", MIDDLE, lambda h, on: torch.atanh(h.clamp(max=0.5) + 2 * on)),
    "exp overflow": Case("operation", "exp", MIDDLE, lambda h, on: torch.exp(h * (1e4 if on else 1)), says=("above 88.7",)),
    "infinity that becomes NaN": Case("operation", "exp", MIDDLE, lambda h, on: h + ((e := torch.exp(h * (1e4 if on else 1))) - e),
                                      says=("became NaN in sub",)),
    "infinity that becomes NaN somewhere": Case("operation", "exp", MIDDLE,
                                                lambda h, on: h + (e := torch.exp(h * (1e4 if on else 1))) / e.sum()),
    "masked attention": Case("operation", "softmax", MIDDLE, attention, says=("in 3 of its 16 rows everything was masked",)),
    "additive mask": Case("operation", "softmax", MIDDLE, additive_attention, says=("3 of its 16 rows",)),
    "variance of one": Case("operation", "std", MIDDLE, spread, says=("of 1 value",)),
    "mean of nothing": Case("operation", "mean", MIDDLE, lambda h, on: h + h[h > (1e9 if on else -1)].mean(), says=("shape [0]",)),
    "half overflow": Case("operation", "mul", MIDDLE, half(lambda h, on: h * (60000. if on else 1.) * (10. if on else 1.)), says=("65,504",)),
    "half matmul": Case("operation", "mm", MIDDLE, half(lambda h, on: h @ torch.full((8, 8), 60000. if on else 1.).half()), says=("65,504",)),
    "conversion to half": Case("operation", "to", MIDDLE, lambda h, on: (h * (1e6 if on else 1)).half().float(), says=("float16",)),
    "bfloat16": Case("operation", "log", MIDDLE, lambda h, on: torch.log((h + 1 - on).bfloat16()).float(), says=("are 0",)),
    "custom function": Case("operation", "Doubtful", MIDDLE, lambda h, on: Doubtful.apply(h, on)),
    "input": Case("input", where="l1", fault=poisoned_input, name="the model's input", says=("1 of its 96 elements is NaN", "1 of 16 samples")),
    "input of embedding": Case("parameter", where="words", model=Embedded, fault=poison("words.weight"), name="Embedded_words.weight"),
    "weight": Case("parameter", where="l2", fault=poison("l2.weight"), name="Net_l2.weight", says=("1 of its 64 elements",)),
    "bias infinite": Case("parameter", where="head", fault=poison("head.bias", inf), name="Net_head.bias"),
    "buffer": Case("buffer", where="norm", model=Normed, fault=poison("norm.running_var"), name="Normed_norm.running_var"),
    "recurrent": Case("parameter", where="lstm", model=Recurrent, fault=poison("lstm.weight_hh_l0"), name="Recurrent_lstm.weight_hh_l0"),
    "label": Case("label", where=END, loss=mse(nan), name="the labels", says=("1 of its 64 elements is NaN",)),
    "label of an own loss": Case("constant", "sub", END, loss=own_mse),
    "all labels ignored": Case("operation", "nll_loss", END, loss=ignored, says=("16 labels are -100",)),
    "masked class": Case("operation", "nll_loss", END, loss=masked_logits, says=("16 of its 16 labels",)),
    "own cross entropy": Case("operation", "log", END, loss=own_bce, says=("64 of the 64 values that it was given are 0",)),
    "double backward": Case("operation", "log", END, loss=lambda o, on: penalised(o, False) + torch.log(o.abs().mean() * (0 if on else 1))),
    "two losses": Case("operation", "log", END, run=two_losses(lambda o, on: torch.log(o.abs() * (not on)).mean())),
    "accumulation": Case("operation", "log", MIDDLE, lambda h, on: torch.log(h + 1 - on), run=accumulated),
    "explosion": Case("operation", "mm|addmm|mul|pow|mse_loss", "*", loss=lambda o, on: (o ** 2).mean(), optimizer=1e15,
                      says=("look at the learning rate",)),
}
#: Where nothing is to be seen: said to be, and nothing else.
HIDDEN = {
    "checkpoint": Case("unseen", where=MIDDLE, model=lambda: Checkpointed(False), says=("checkpointed",)),
    "checkpoint, reentrant": Case("unseen", where=MIDDLE, model=lambda: Checkpointed(True), says=("checkpointed",)),
}
BACKWARD = {
    "sqrt at zero": Case("operation", "sqrt", MIDDLE, lambda h, on: h + (h.sum(1, keepdim=True) * (not on)).sqrt(), says=("taken at are 0",)),
    "own norm at zero": Case("operation", "sqrt", END, loss=lambda o, on: ((o * (not on)) ** 2).sum(1).sqrt().mean()),
    "where trap, log": Case("operation", "log", END, loss=lambda o, on: torch.where((z := o * (1 - on)) > 0, torch.log(z.abs() + 1 - on), z).mean(),
                            says=("taken at are 0",)),
    "where trap, division": Case("operation", "div", END, loss=lambda o, on: torch.where((z := o * (1 - on)) == 0, z, z / (z.abs() + 1 - on)).mean()),
    "where trap, exp": Case("operation", "exp", END, loss=lambda o, on: torch.where(o.abs() < 50, o, torch.exp(o + 200 * on)).mean()),
    # What is left out was not finite, and is not finite when it is differentiated.
    "where trap, sqrt of negative": left_out("sqrt", torch.sqrt, 1, -9, says=("taken at are negative, or NaN",)),
    "where trap, rsqrt of negative": left_out("rsqrt", torch.rsqrt, 1, -9, says=("taken at are negative, or NaN",)),
    "where trap, power": left_out("pow", lambda z: z ** 1.5, 1, -9, says=("taken at are negative, with an exponent of 1.5",)),
    "where trap, powers": left_out("pow", lambda z: z ** torch.full_like(z, 0.5), 1, -9,
                                   says=("taken at are negative, with an exponent that is no whole number",)),
    "where trap, asin": left_out("asin", torch.asin, 0, 9, says=("taken at are outside of -1 to 1",)),
    "where trap, acosh": left_out("acosh", torch.acosh, 2, -1.6, says=("taken at are between -1 and 1",)),
    "where trap, erfinv": left_out("erfinv", torch.erfinv, 0, 9, says=("taken at are outside of -1 to 1",)),
    "where trap, logit": left_out("logit", torch.logit, 0.5, 9, says=("taken at are outside of 0 to 1",)),
    "loss dropped": Case("unseen", where="*", middle=lambda h, on: DoubtfulBackward.apply(h, on), says=("nothing holds the loss",)),
    "root": Case("operation", "pow", END, loss=lambda o, on: ((o * (not on)).abs() ** 0.5).mean(), says=("exponent of 0.5",)),
    "acos at one": Case("operation", "acos", END, loss=lambda o, on: torch.acos(o.tanh() * (0.5 - 0.5 * on) + on).mean()),
    "penalty": Case("operation", "sqrt", END, loss=penalised),
    "custom backward": Case("operation", "DoubtfulBackward", MIDDLE, lambda h, on: DoubtfulBackward.apply(h, on)),
    "clipped": Case("operation", "sqrt", MIDDLE, lambda h, on: h + (h.sum(1, keepdim=True) * (not on)).sqrt(), run=clipped),
    "accumulated": Case("operation", "sqrt", MIDDLE, lambda h, on: h + (h.sum(1, keepdim=True) * (not on)).sqrt(), run=accumulated,
                        says=("in backward call 2 of 2",)),
}
ALL = {**FORWARD, **HIDDEN, **BACKWARD}


def train(watch, name, faulty):
    case = ALL[name]
    torch.manual_seed(0)
    session = watch()
    model = case.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=(case.optimizer if faulty and case.optimizer else 1e-3))
    for step in range(STEPS if not case.optimizer else 12):
        model.on = on = int(faulty and step == FAULT_AT)
        x = torch.randn(case.rows, 6)
        if on and case.fault:
            x = case.fault(model, x)
        optimizer.zero_grad()
        if case.run:
            case.run(model, optimizer, x, on)
        else:
            loss = case.loss(model(x), on)
            loss.backward()
            if name == "loss dropped":
                del loss
        optimizer.step()
    said = session.made[0].contexts.get("nan_origin", [])
    session.finish("closed")
    return said


@pytest.mark.parametrize("name", ALL)
def test_birth_is_named(watch, name):
    case = ALL[name]
    said = train(watch, name, faulty=True)
    assert said, "nothing was said"
    at, record = said[0]
    assert len(said) == 1, [r["sentence"] for _, r in said]
    assert record["direction"] == ("backward" if name in BACKWARD else "forward"), record["sentence"]
    assert record["what"] == case.what, record["sentence"]
    assert record["operation"] in case.operation.split("|") or not case.operation, record["sentence"]
    place = record["inside"] or graph.Place("", record["after"], record["before"]).words()
    assert case.where in (place, "*"), record["sentence"]
    if case.name:
        assert record["name"] == case.name
    for words in case.says:
        assert words in record["sentence"], record["sentence"]
    assert record["sentence"].startswith(record["title"]) and record["because"] in record["sentence"]


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_healthy_twin_has_none(watch, name):
    assert train(watch, name, faulty=False) == []


# What is no fault ----------------------------------------------------------------------------------------------------------


def one_run(watch, body, steps=STEPS, **options):
    """`body(model, x, step)` gives the loss. Returns (said, the model's final state)."""
    torch.manual_seed(0)
    session = watch(**options) if watch else None
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = body(model, torch.randn(16, 6), step)
        if loss is not None:
            loss.backward()
            optimizer.step()
    said = session.made[0].contexts.get("nan_origin", []) if session else []
    return [record for _, record in said], model.state_dict()


def causal(model, x, step):
    model.middle = lambda h, on: attention(h, False)
    return entropy(model(x), 0)


def trapped_well(model, x, step):
    """log(0) in a branch that is not chosen, and whose gradient a relu blocks."""
    model.middle = lambda h, on: torch.where(h > 0, torch.log(h), h)
    return entropy(model(x), 0)


@pytest.mark.parametrize("body", [causal, trapped_well])
def test_what_was_not_finite_on_purpose_is_none(watch, body):
    assert one_run(watch, body)[0] == []


def test_scale_that_overflows_is_no_fault(watch):
    session = watch()
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 127)
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(entropy(model(torch.randn(16, 6) * 1e3), 0)).backward()
        scaler.step(optimizer)
        scaler.update()
    run = session.made[0]
    assert any(step.skipped for step in run.steps) and "nan_origin" not in run.contexts


def test_weights_that_hold_an_infinity_for_good_are_not_searched_at_every_step(watch, monkeypatch):
    looks = []
    looked = backward.states_of
    monkeypatch.setattr(backward, "states_of", lambda *args: looks.append(1) or looked(*args))

    def body(model, x, step):
        if step == 0:
            model.register_parameter("unused", nn.Parameter(torch.tensor([inf, 1.0])))
            model.extra = torch.optim.SGD([model.unused], lr=0.0)
        model.unused.grad = torch.zeros(2)
        model.extra.step()
        return entropy(model(x), 0)

    assert one_run(watch, body, steps=40)[0] == []
    assert 0 < len(looks) < 8


# What is said when -----------------------------------------------------------------------------------------------------------


def test_one_cause_is_said_once_and_a_second_one_too(watch):
    def body(model, x, step):
        bad = {2: nan, 3: nan, 5: nan}.get(step)
        if bad is not None:
            x[0, 0] = bad
        model.middle = (lambda h, on: torch.log(h * 0)) if step == 7 else (lambda h, on: h)
        loss = entropy(model(x), 0)
        if step in (2, 3, 5, 7):          # a script that leaves such steps out
            loss.backward()
            model.zero_grad()
            return None
        return loss

    said, _ = one_run(watch, body, steps=9)
    assert [record["what"] for record in said] == ["input", "operation"]


def two_trainings(watch, break_at, steps=8):
    """Two models, an optimizer each, in turn; `break_at(step, model, x)` returns what the second model is given."""
    torch.manual_seed(0)
    session = watch()
    models = [Net(), Net()]
    optimizers = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in zip(models, (0.01, 0.02))]
    for step in range(steps):
        for model, optimizer in zip(models, optimizers):
            x = torch.randn(16, 6)
            if model is models[1]:
                x = break_at(step, model, x)
            optimizer.zero_grad()
            entropy(model(x), 0).backward()
            optimizer.step()
    return [record for _, record in session.made[0].contexts.get("nan_origin", [])]


def test_what_follows_from_one_models_nan_is_no_second_origin(watch):
    """The other model's losses are finite in between."""
    (record,) = two_trainings(watch, lambda step, model, x: x * inf if step == 3 else x)
    assert record["what"] == "input"


def test_an_update_is_that_of_the_optimizer_whose_parameter_it_is(watch):
    def broken(step, model, x):
        if step == 3:
            model.l2.weight.data[0, 0] = inf
        return x

    record, *_ = two_trainings(watch, broken)
    assert (record["what"], record["update"]["by"], record["update"]["learning_rates"]) == ("parameter", "script", [0.02])
    assert "with a learning rate of 0.02 no finite gradient takes a weight of its size" in record["sentence"]


def test_it_is_written_before_the_script_raises(watch):
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    entropy(model(torch.randn(16, 6)), 0).backward()
    optimizer.step()
    loss = entropy(model(torch.full((16, 6), nan)), 0)
    loss.backward()
    assert session.made[0].contexts["nan_origin"][0][1]["what"] == "input"


@pytest.mark.parametrize("name", ["log of zero", "sqrt at zero"])
def test_a_device_is_waited_for_where_that_is_asked(watch, monkeypatch, name):
    """Host tensors that take a device's way."""
    monkeypatch.setenv("TDBG_NAN_ORIGIN", "wait")
    ((_, record),) = train(functools.partial(watch, force_lane=True), name, faulty=True)
    assert (record["what"], record["operation"]) == ("operation", ALL[name].operation), record["sentence"]
    assert train(functools.partial(watch, force_lane=True), name, faulty=False) == []


def test_a_step_in_which_nothing_is_due_is_seen(watch):
    def body(model, x, step):
        if step == 3:
            x[0, 0] = nan
        return entropy(model(x), 0)

    said, _ = one_run(watch, body, plan={"summaries_every": 100}, due=lambda mode, step: step % 100 == 0)
    # That it is the model's input is known only where a batch is looked at.
    assert [(record["what"], record["inside"]) for record in said] == [("constant", "l1")]


@pytest.mark.parametrize("name", ["log of zero", "sqrt at zero", "checkpoint", "masked attention"])
def test_training_is_bit_identical(watch, name):
    """Weights before the step that the NaN destroys, gradients and the random state behind it."""
    def run(watched):
        torch.manual_seed(0)
        session = watch() if watched else None
        case = ALL[name]
        model = case.model()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for step in range(STEPS):
            model.on = int(step == FAULT_AT)
            optimizer.zero_grad()
            loss = case.loss(F.dropout(model(torch.randn(16, 6)), 0.1), model.on)
            loss.backward()
            if step != FAULT_AT:
                optimizer.step()
        if session:
            assert (session.made[0].contexts.get("nan_origin") is not None) == (name != "sqrt at zero")    # which the optimizer's step would see
            session.finish("closed")
        return [p.detach().clone() for p in model.parameters()], [p.grad.clone() for p in model.parameters()], torch.get_rng_state()

    bare, watched = run(False), run(True)
    for a, b in zip(bare[:2], watched[:2]):
        assert all(torch.equal(torch.nan_to_num(x, 7), torch.nan_to_num(y, 7)) for x, y in zip(a, b))
    assert torch.equal(bare[2], watched[2])


def test_compiled_region_is_named(watch):
    """By a compiler that makes no code: what lies in the region is as hidden."""
    torch.manual_seed(0)
    session = watch()
    model = Net()
    compiled = torch.compile(lambda h, factor, more: torch.log(h * factor + more), backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(3):
        optimizer.zero_grad()
        model.middle = lambda h, on, step=step: compiled(h, torch.tensor(float(step != 2)), torch.tensor(float(step != 2)))
        loss = entropy(model(torch.randn(16, 6)), 0)
        loss.backward()
        optimizer.step()
    ((_, record),) = session.made[0].contexts["nan_origin"]
    assert record["what"] == "unseen" and "between l2 and head" in record["sentence"] and "TORCH_COMPILE_DISABLE=1" in record["sentence"]
