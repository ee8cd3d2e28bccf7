"""What tdbg advises about an origin helps: each fault is followed by the same computation as it was advised, which stays finite."""

import pytest
import torch
import torch.nn.functional as F

from tdbg.adaptors.torch.origin import advice, backward, walk

inf = float("inf")
AT_ZERO = torch.tensor([0.0, 1.0, 2.0])
BELOW = torch.tensor([-1.0, 1.0, 2.0])
MASKED = torch.tensor([[True, True], [False, True]])
EQUAL = torch.tensor([1.0, 1.0, 1.0])
ONE_CLASS = torch.tensor([False, False, True])
LABELS = torch.tensor([0, 1])


def spread(x):
    return x[:1].var() + x.sum()


# (what fails, the same as advised, at what, words of the advice)
FORWARD = {
    "log": (torch.log, lambda x: torch.log(x.clamp(min=1e-7)), AT_ZERO, "clamp what log is given from below"),
    "log of a softmax": (lambda x: torch.log(torch.softmax(x * 200, 0)) * F.one_hot(torch.tensor(2), 3),
                         lambda x: torch.log_softmax(x * 200, 0) * F.one_hot(torch.tensor(2), 3), AT_ZERO, "take log_softmax"),
    "log10": (torch.log10, lambda x: torch.log10(x.clamp(min=1e-7)), AT_ZERO, "clamp"),
    "sqrt": (torch.sqrt, lambda x: torch.sqrt(x.clamp(min=0) + 1e-12), BELOW, "clamp what it is given at 0"),
    "rsqrt": (torch.rsqrt, lambda x: torch.rsqrt(x + 1e-12), AT_ZERO, "small number to the divisor"),
    "division": (lambda x: 1 / x, lambda x: 1 / (x + 1e-12), AT_ZERO, "small number to the divisor"),
    "division by a tensor": (lambda x: x / x, lambda x: x / (x + 1e-12), AT_ZERO, "small number to the divisor"),
    "pow": (lambda x: x ** 0.5, lambda x: x.clamp(min=1e-12) ** 0.5, BELOW, "clamp what is raised"),
    "pow of zero": (lambda x: x ** -1.5, lambda x: x.clamp(min=1e-6) ** -1.5, AT_ZERO, "clamp what is raised above 0"),
    "exp": (lambda x: torch.exp(x * 100), lambda x: torch.exp(x * 100 - (x * 100).max()), AT_ZERO, "subtract the largest value first"),
    "acos": (torch.acos, lambda x: torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6)), AT_ZERO, "a little inside of its ends"),
    "atanh": (torch.atanh, lambda x: torch.atanh(x.clamp(-1 + 1e-6, 1 - 1e-6)), AT_ZERO, "a little inside of its ends"),
    "log1p": (torch.log1p, lambda x: torch.log1p(x.clamp(min=-1 + 1e-6)), BELOW, "a little inside of its ends"),
    "softmax": (lambda x: torch.softmax((x[:2] * 1).expand(2, 2).masked_fill(MASKED, -inf), -1),
                lambda x: torch.softmax((x[:2] * 1).expand(2, 2).masked_fill(MASKED, torch.finfo(x.dtype).min), -1),
                AT_ZERO, "torch.finfo(dtype).min"),
    "ignored labels": (lambda x: F.cross_entropy(x.expand(2, 3), torch.tensor([-100, -100])),
                       lambda x: F.cross_entropy(x.expand(2, 3), torch.tensor([-100, -100]), reduction="sum") / max(0, 1),
                       AT_ZERO, "divide by max(count, 1)"),
    "mean of nothing": (lambda x: x[:0].mean() + x.sum(), torch.sum, AT_ZERO, "leave an empty selection out"),
    "variance of one": (spread, lambda x: x[:1].var(correction=0) + x.sum(), AT_ZERO, "correction=0"),
    "log_softmax": (lambda x: torch.log_softmax((x[:2] * 1).expand(2, 2).masked_fill(MASKED, -inf), -1)[:, :1],
                    lambda x: torch.log_softmax((x[:2] * 1).expand(2, 2).masked_fill(MASKED, torch.finfo(x.dtype).min), -1)[:, :1],
                    AT_ZERO, "torch.finfo(dtype).min"),
    "smoothing over a mask": (lambda x: F.cross_entropy((x * 1).expand(2, 3).masked_fill(ONE_CLASS, -inf), LABELS, label_smoothing=0.1),
                              lambda x: F.cross_entropy((x * 1).expand(2, 3).masked_fill(ONE_CLASS, -1e4), LABELS, label_smoothing=0.1),
                              AT_ZERO, "mask with -1e4"),
    "smoothing, without it": (lambda x: F.cross_entropy((x * 1).expand(2, 3).masked_fill(ONE_CLASS, -inf), LABELS, label_smoothing=0.1),
                              lambda x: F.cross_entropy((x * 1).expand(2, 3).masked_fill(ONE_CLASS, -inf), LABELS), AT_ZERO, "no share in the loss"),
    "no rows": (lambda x: F.cross_entropy(x.expand(2, 3)[:0], LABELS[:0]),
                lambda x: F.cross_entropy(x.expand(2, 3)[:0], LABELS[:0], reduction="sum") / max(0, 1), AT_ZERO, "divide by max(count, 1)"),
    "singular": (lambda x: torch.linalg.slogdet(x.expand(3, 3) * 1)[1], lambda x: torch.linalg.slogdet(x.expand(3, 3) + 1e-6 * torch.eye(3))[1],
                 AT_ZERO, "A + 1e-6 * I"),
    "layer norm": (lambda x: F.layer_norm(x, (3,), eps=0.0), lambda x: F.layer_norm(x, (3,), eps=1e-5), EQUAL, "an eps above 0"),
    "digamma": (torch.digamma, lambda x: torch.digamma(x.clamp(min=1e-6)), AT_ZERO, "clamp what it is given above 0"),
    "ndtri": (torch.special.ndtri, lambda x: torch.special.ndtri(x.clamp(1e-6, 1 - 1e-6)), AT_ZERO.clamp(max=0.5), "a little inside of its ends"),
    "addcdiv": (lambda x: torch.addcdiv(x, x + 1, x), lambda x: torch.addcdiv(x, x + 1, x + 1e-12), AT_ZERO, "small number to the divisor"),
    "product": (lambda x: (x * 1e30).prod(), lambda x: (x * 1e30).log().sum(), EQUAL, "add up logarithms"),
    "exp2": (lambda x: torch.exp2(x * 1e3), lambda x: torch.exp2((x * 1e3).clamp(max=100)), AT_ZERO, "clamp what it is given"),
    "i0": (lambda x: torch.i0(x[2:] * 1e3), lambda x: torch.special.i0e(x[2:] * 1e3), AT_ZERO, "take i0e"),
    "ctc": (lambda x: F.ctc_loss(torch.log_softmax(x.expand(2, 1, 3), -1), torch.tensor([[1, 1]]), [2], [2]),
            lambda x: F.ctc_loss(torch.log_softmax(x.expand(2, 1, 3), -1), torch.tensor([[1, 1]]), [2], [2], zero_infinity=True),
            AT_ZERO, "zero_infinity=True"),
    "float16": (lambda x: (x * 200).half() @ (x * 200).half(), lambda x: (x * 200) @ (x * 200), AT_ZERO, "compute it in bfloat16 or float32"),
    "float32": (lambda x: (x * 1e30) @ (x * 1e30), torch.sum, AT_ZERO, "lower the learning rate"),
}
BACKWARD = {
    "sqrt": (torch.sqrt, lambda x: torch.sqrt(x + 1e-12), AT_ZERO, "sqrt(x + 1e-12)"),
    "pow": (lambda x: x ** 0.5, lambda x: (x + 1e-12) ** 0.5, AT_ZERO, "(x + 1e-12) ** p"),
    "sqrt behind where": (lambda x: torch.where(x > 0, torch.sqrt(x * 1), x), lambda x: torch.where(x > 0, torch.sqrt(x + 1e-12), x),
                          AT_ZERO, "sqrt(x + 1e-12)"),
    "log behind where": (lambda x: torch.where(x > 0, torch.log(x * 1), x), lambda x: torch.where(x > 0, torch.log(x.clamp(min=1e-7)), x),
                         AT_ZERO, "a where behind it does not help"),
    "division behind where": (lambda x: torch.where(x > 0, 1 / (x * 1), x), lambda x: torch.where(x > 0, 1 / torch.where(x > 0, x, 1), x),
                              AT_ZERO, "replace the zeros before it divides"),
    "acos": (torch.acos, lambda x: torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6)), torch.tensor([1.0, 0.5]), "a little inside of its ends"),
    "entr": (torch.special.entr, lambda x: torch.special.entr(x.clamp(min=1e-7)), AT_ZERO, "clamp what it is given from below"),
    "hypot": (lambda x: torch.hypot(x, x * 1), lambda x: torch.hypot(x + 1e-12, x * 1), AT_ZERO, "one of its arguments"),
}


def loss_and_leaf(compute, at):
    leaf = at.clone().requires_grad_()
    return compute(leaf * 1).float().sum(), leaf


def finite_as_advised(compute, at):
    loss, leaf = loss_and_leaf(compute, at)
    loss.backward()
    return bool(loss.isfinite()) and bool(leaf.grad.isfinite().all())


@pytest.mark.parametrize("name", FORWARD)
def test_what_is_advised_of_a_loss_keeps_it_finite(name):
    fails, as_advised, at, words = FORWARD[name]
    loss, _ = loss_and_leaf(fails, at)
    assert not loss.isfinite()
    birth = walk.Walk([loss], lambda leaf: "p", lambda leaf: "p").find()
    assert birth.what == walk.OPERATION, birth
    assert words in advice.advice(birth, "forward"), (birth, advice.advice(birth, "forward"))
    assert finite_as_advised(as_advised, at)


@pytest.mark.parametrize("name", BACKWARD)
def test_what_is_advised_of_gradients_keeps_them_finite(name):
    fails, as_advised, at, words = BACKWARD[name]
    loss, leaf = loss_and_leaf(fails, at)
    assert loss.isfinite()
    holder = backward.Holder(lambda leaf: "p")
    holder.before_backward(loss)
    loss.backward()
    found = backward.states_of([leaf], lambda p: p.grad, walk.Budget())
    birth = backward.find(found, holder.held, [loss], lambda leaf: "p", 1)
    assert birth.what == walk.OPERATION, birth
    assert words in advice.advice(birth, "backward"), (birth, advice.advice(birth, "backward"))
    assert finite_as_advised(as_advised, at)


@pytest.mark.parametrize("what, made_by, words", [
    (walk.PARAMETER, "update", "lower the learning rate"), (walk.PARAMETER, "initial", "what was loaded"), (walk.PARAMETER, "unknown", "look at what writes to it"),
    (walk.INPUT, "", "what makes the batch"), (walk.LABEL, "", "where the labels come from"), (walk.BUFFER, "", "what writes to it"),
    (walk.CONSTANT, "", "without a gradient"), (walk.UNSEEN, "", "")])
def test_what_came_in_is_looked_for_where_it_comes_from(what, made_by, words):
    said = advice.advice(walk.Birth(what, operation="log", numbers={"zeros": 1}), "forward", made_by)
    assert (words in said) and bool(words) == bool(said)


def test_of_an_operation_of_which_no_more_is_known_its_arguments_are_looked_at():
    assert "tdbg replay" in advice.advice(walk.Birth(walk.OPERATION, operation="my_function"), "forward")
