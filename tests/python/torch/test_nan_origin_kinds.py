"""Kinds of births by operation, each in a training: what is named must be what did it, and its reason the true one."""

import pytest
import torch
import torch.nn.functional as F
from test_nan_origin_reports import FAULT_AT, STEPS, batch, entropy, model, one_model, said_of, two_models
from torch import nn

inf, nan = float("inf"), float("nan")
LABELS = torch.arange(16) % 4


def switched(tensor, on):
    return tensor * (not on)


def masked(output, on, columns=(0, 0, 0, 1)):
    return output.masked_fill(torch.tensor(columns).bool() & on, -inf)


def one_row_masked(output, on):
    mask = torch.zeros(16, 1, dtype=torch.bool)
    mask[3] = on
    return -F.log_softmax(output.masked_fill(mask, -inf), -1).gather(1, LABELS[:, None]).mean()


def one_row_masked_by_a_sum(output, on):
    mask = torch.zeros(16, 4)
    mask[3] = -inf if on else 0
    return F.cross_entropy(output + mask, LABELS)


def attention(output, on):
    mask = torch.full((16, 16), -inf if on else 0.0)
    return (torch.softmax(output @ output.t() / 2 + mask, -1) @ output).sum()


def of_none(loss, target=lambda n: torch.zeros(n, 4), of=lambda o: o):
    def loss_of(output, on):
        n = 0 if on else 16
        return loss(of(output)[:n], target(n))
    return loss_of


def all_ignored(output, on):
    return F.cross_entropy(output, torch.full((16,), -100) if on else LABELS)


def complex_quotient(output, on):
    number = torch.complex(output, output)
    return (number / switched(number, on)).abs().mean()


def matrices(output, on):
    a = output.view(4, 4, 4)
    return switched(a @ a.mT + torch.eye(4), on)


def leaky_variance(output, on):
    return F.batch_norm(output, torch.zeros(4), torch.full((4,), -1.0 if on else 1.0)).pow(2).mean()


def aligned(output, on):
    scores = F.log_softmax(output.view(4, 4, 4), -1)
    return F.ctc_loss(scores, torch.tensor([[1, 1, 1]] * 4), torch.tensor([4] * 4), torch.tensor([3 if on else 1] * 4))


def largest_of_nothing(output, on):
    z = masked(output, on, (1, 1, 1, 1))
    return (z - z.amax(1, keepdim=True)).mean()


def normal(output, on):
    scale = switched(output.exp(), on)
    return -torch.distributions.Normal(output, scale, validate_args=False).log_prob(torch.zeros(16, 4)).mean()


FORWARD = {
    "log_softmax, a row masked": (one_row_masked, "log_softmax", "in 1 of its 16 rows everything was masked"),
    "log_softmax, a row masked by a sum": (one_row_masked_by_a_sum, "log_softmax", "1 of its 16 rows is NaN from end to end"),
    "attention, all masked": (attention, "softmax", "all of its 16 rows are NaN from end to end, as a row is in which everything was masked"),
    "smoothing over a masked class": (lambda o, on: F.cross_entropy(masked(o, on), LABELS % 3, label_smoothing=0.1), "sum",
                                      "16 of the 64 values that it was given are -infinity, which masked_fill put there"),
    "divergence from a masked class": (lambda o, on: F.kl_div(F.log_softmax(masked(o, on), -1), torch.full((16, 4), 0.25), reduction="batchmean"),
                                       "mul", "-infinity, which masked_fill put there"),
    "largest of what is all masked": (largest_of_nothing, "sub", "64 of the 64 values that it was given are -infinity, which masked_fill put there"),
    "logsumexp, all masked": (lambda o, on: torch.logsumexp(masked(o, on, (1, 1, 1, 1)), 1).mean(), "logsumexp", "which masked_fill put there"),
    "cross entropy of no rows": (of_none(F.cross_entropy, lambda n: LABELS[:n]), "nll_loss", "nothing to take the mean of: its input has the shape [0, 4]"),
    "cross entropy of no rows, of probabilities": (of_none(F.cross_entropy, lambda n: torch.full((n, 4), 0.25)), "fill", "nothing to take the mean of"),
    "cross entropy, all ignored": (all_ignored, "nll_loss", "all of its 16 labels are -100, the class that is ignored"),
    "squares of no rows": (of_none(F.mse_loss), "mse_loss", "nothing to take the mean of"),
    "huber of no rows": (of_none(F.huber_loss), "huber_loss", "nothing to take the mean of"),
    "binary cross entropy of no rows": (of_none(F.binary_cross_entropy, of=torch.sigmoid), "binary_cross_entropy", "nothing to take the mean of"),
    "complex division": (complex_quotient, "div", "64 of the 64 values that it divided by are 0"),
    "xlogy of a negative": (lambda o, on: torch.xlogy(torch.eye(16, 4), (o.abs() + 0.1) * (-1 if on else 1)).mean(), "xlogy",
                            "4 of the 64 values that it took the logarithm of are negative"),
    "xlogy of zero": (lambda o, on: torch.xlogy(torch.eye(16, 4), switched(o.abs() + 0.1, on)).mean(), "xlogy", "4 of the 64 values that it took the logarithm of are 0"),
    "xlog1py": (lambda o, on: torch.special.xlog1py(torch.ones(16, 4), switched(o.abs(), on) - int(on)).mean(), "xlog1py", "are -1"),
    "slogdet": (lambda o, on: o.mean() - torch.linalg.slogdet(matrices(o, on))[1].mean(), "slogdet", "4 of the 4 matrices that it was given are singular"),
    "logdet": (lambda o, on: o.mean() - torch.logdet(matrices(o, on)).mean(), "slogdet", "are singular"),
    "solve": (lambda o, on: torch.linalg.solve_ex(matrices(o, on), torch.ones(4, 4, 1))[0].sum(), "solve", "are singular"),
    "frozen batch norm": (leaky_variance, "batch_norm", "4 of the 4 values of its running variance are so far below 0"),
    "layer norm of equal values": (lambda o, on: F.layer_norm(switched(o, on), (4,), eps=0.0)[:, 0].mean() + o.mean(), "layer_norm",
                                   "the variance of 16 of the 16 groups of values that it normalises is 0"),
    "ctc": (aligned, "ctc_loss", "4 of its 4 targets are longer than the input allows"),
    "power of each": (lambda o, on: ((-o.abs() if on else o.abs()) ** torch.full((16, 4), 0.5)).mean(), "pow", "negative, and raised to a power that is no whole number"),
    "powers of two": (lambda o, on: torch.pow(2.0, o * (1e4 if on else 1)).mean(), "pow", "its result is larger than float32 holds"),
    "exp2": (lambda o, on: torch.exp2(o * (1e4 if on else 1)).mean(), "exp2", "above 128.0, where exp2 leaves float32"),
    "sinh": (lambda o, on: torch.sinh(o * (1e4 if on else 1)).mean(), "sinh", "beyond 89.4, where sinh leaves float32"),
    "product": (lambda o, on: (o.abs() + (1e15 if on else 1)).prod(1).mean(), "prod", "the largest value that it was given is 1e+15"),
    "digamma": (lambda o, on: torch.digamma(switched(o.abs() + 0.1, on)).mean(), "digamma", "64 of the 64 values that it was given are 0 or a negative whole number"),
    "ndtri": (lambda o, on: torch.special.ndtri(switched(o.sigmoid(), on) + on).mean(), "ndtri", "are 0 or 1"),
    "logit": (lambda o, on: torch.logit((o * (1e4 if on else 1)).sigmoid()).mean(), "logit", "are 0, 1 or outside of 0 to 1"),
    "remainder": (lambda o, on: torch.remainder(o, switched(o.abs() + 0.1, on)).mean(), "remainder", "64 of the 64 values that it divided by are 0"),
    "addcdiv": (lambda o, on: torch.addcdiv(o, torch.ones(16, 4), switched(o.abs() + 0.1, on)).mean(), "addcdiv", "that it divided by are 0"),
    "temperature of 0": (lambda o, on: F.nll_loss(F.log_softmax(o / (0.0 if on else 1.0), 1), LABELS), "div", "it divided by 0"),
    "normalised without an eps": (lambda o, on: F.normalize(switched(o, on), dim=1, eps=0.0)[:, 0].mean(), "div", "that it divided by are 0"),
    "a normal of no width": (normal, "log", "64 of the 64 values that it was given are 0; and in div: 64 of the 64 values that it divided by are 0"),
}


@pytest.mark.parametrize("name", FORWARD)
def test_a_loss_is_not_finite(watch, name):
    loss_of, operation, words = FORWARD[name]
    (record,) = said_of(watch, lambda: one_model(loss_of))
    assert (record["what"], record["direction"], record["operation"]) == ("operation", "forward", operation), record["sentence"]
    assert words in record["sentence"], record["sentence"]
    assert record["advice"] and "tdbg replay" not in record["advice"], record["advice"]


BACKWARD = {
    "entr": (lambda o, on: torch.special.entr(switched(o.abs() + 0.1, on)).mean(), "entr", "64 of the 64 values that its derivative was taken at are 0"),
    "hypot": (lambda o, on: torch.hypot(switched(o, on), switched(o, on)).mean(), "hypot", "64 of the 64 values of its result are 0, where it has no derivative"),
    "xlogy": (lambda o, on: torch.xlogy(torch.zeros(16, 4), switched(o.abs() + 0.1, on)).mean(), "xlogy", "64 of the 64 values that it took the logarithm of are 0"),
    "asin": (lambda o, on: torch.asin(switched(o.tanh() / 2, on) + on).mean(), "asin", "are -1 or 1"),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_gradient_is_not_finite(watch, name):
    loss_of, operation, words = BACKWARD[name]
    (record,) = said_of(watch, lambda: one_model(loss_of))
    assert (record["what"], record["direction"], record["operation"]) == ("operation", "backward", operation), record["sentence"]
    assert words in record["sentence"], record["sentence"]
    assert record["advice"] and "tdbg replay" not in record["advice"], record["advice"]


def test_a_divisor_that_nothing_keeps_is_not_said_to_be_finite(watch):
    (record,) = said_of(watch, lambda: one_model(lambda o, on: torch.remainder(o, switched(torch.ones(16, 4), on)).mean()))
    assert (record["what"], record["operation"]) == ("constant", "remainder") and "is not kept" in record["sentence"], record["sentence"]


FINITE = {
    "cdist": lambda o, on: torch.cdist(switched(o, on), torch.zeros(3, 4)).mean(),
    "deviation of equal values": lambda o, on: o.mean() + switched(o, on).std(0).mean(),
    "atan2": lambda o, on: torch.atan2(switched(o, on), switched(o, on)).mean() + o.mean(),
    "nuclear norm": lambda o, on: torch.linalg.matrix_norm(switched(o, on), ord="nuc"),
    "a masked class": lambda o, on: F.cross_entropy(masked(o, on), LABELS % 3),
}


@pytest.mark.parametrize("name", FINITE)
def test_what_torch_keeps_finite_is_not_told(watch, name):
    assert said_of(watch, lambda: one_model(FINITE[name])) == []


# Two optimizers of one model ---------------------------------------------------------------------------------------------


def two_optimizers(loss_of, spoil=lambda net, on: None):
    """Of the embedding's rows one, of all else the other, as recommender and language models have it."""
    embed, head = nn.Embedding(10, 6, max_norm=1.0, sparse=True), model()
    net = nn.ModuleDict({"embed": embed, "head": head})
    updates = [torch.optim.SGD(embed.parameters(), 0.01), torch.optim.Adam(head.parameters(), 0.02)]
    for step in range(STEPS):
        spoil(net, step == FAULT_AT)
        for update in updates:
            update.zero_grad()
        loss_of(head(embed(torch.arange(16) % 10)), step == FAULT_AT).backward()
        for update in updates:
            update.step()


def adversarial(first, second, on):
    """A discriminator that is certain, as its own log sees it."""
    score = torch.sigmoid(second(first(batch()).repeat(1, 2)[:, :6]) * (1e4 if on else 1)).abs()
    return [-(torch.log(1 - score) * (score > 0.5)).mean() - torch.log(score + 1e-3).mean()]


def test_two_optimizers_that_meet_in_one_loss(watch):
    (record,) = said_of(watch, lambda: two_models(adversarial))
    assert (record["operation"], record["direction"]) == ("log", "forward") and "are 0" in record["because"], record["sentence"]


def test_two_optimizers_of_one_model(watch):
    (record,) = said_of(watch, lambda: two_optimizers(lambda o, on: entropy(o) + torch.hypot(switched(o, on), switched(o, on)).mean()))
    assert (record["operation"], record["direction"]) == ("hypot", "backward"), record["sentence"]


def test_a_row_of_an_embedding_that_the_script_spoils(watch):
    def spoil(net, on):
        if on:
            net["embed"].weight.data[2, 3] = inf

    record, *_ = said_of(watch, lambda: two_optimizers(lambda o, on: entropy(o), spoil))
    assert record["what"] == "parameter" and record["name"].endswith("embed.weight"), record["sentence"]


# Who wrote an infinity ---------------------------------------------------------------------------------------------------


def poke(net, on):
    if on:
        net[2].weight.data[0, 0] = inf


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9)])
def test_an_infinity_that_no_step_of_its_size_makes_is_the_scripts(watch, optimizer):
    record, *_ = said_of(watch, lambda: one_model(lambda o, on: entropy(o), optimizer, poke))
    assert (record["name"], record["update"]["by"]) == ("Sequential_2.weight", "script"), record["sentence"]
    assert "with a learning rate of 0.01 no finite gradient takes a weight of its size" in record["sentence"]


@pytest.mark.parametrize("optimizer", [lambda p, lr: torch.optim.SGD(p, 1e30), lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True)])
def test_an_infinity_that_a_step_may_make_is_not(watch, optimizer):
    record, *_ = said_of(watch, lambda: one_model(lambda o, on: entropy(o) * (1e12 if on else 1e-25), optimizer, poke))
    assert record["what"] != "parameter" or record["update"]["by"] == "update", record["sentence"]


def test_an_overflow_of_the_loss_scale_is_not_told(watch):
    def body():
        net = model()
        update, scaler = torch.optim.SGD(net.parameters(), lr=0.01), torch.amp.GradScaler("cpu", init_scale=2.0 ** 120)
        for _ in range(STEPS):
            update.zero_grad()
            scaler.scale(entropy(net(batch())) * 1e4).backward()
            scaler.step(update)
            scaler.update()

    assert said_of(watch, body) == []
