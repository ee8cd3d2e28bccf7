"""Losses by their names, functional or module, copied when they appear; context."""

import functools
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tdbg.adaptors.steps import TRAIN
from tdbg.adaptors.torch import losses as _losses
from tdbg.adaptors.torch.params import READER


def train(model, loss, steps=1, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(model(torch.ones(6, 4))).backward()
        optimizer.step()
    return optimizer


def labels():
    return torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("loss", [lambda y: F.cross_entropy(y, labels()), lambda y: nn.CrossEntropyLoss()(y, labels())])
def test_functional_and_module_have_one_name(watch, loss):
    session = watch()
    train(nn.Linear(4, 3), loss)
    run = session.made[0]
    value = run.steps[0]["CrossEntropyLoss_output_0"]
    assert value.shape == () and run.steps[0].scalars["backward_loss", 0] == pytest.approx(float(value))
    assert run.spec("CrossEntropyLoss_output_0")["kind"] == "loss"


def test_own_loss_is_backward_loss_and_a_loss(watch):
    session = watch()
    train(nn.Linear(4, 3), lambda y: (y ** 2).mean(), steps=2)
    run = session.made[0]
    assert run.spec("backward_loss")["collections"] == ["losses"]
    assert all(("backward_loss", 0, 0) in s.values for s in run.steps)


def test_a_loss_that_fsdps_own_scaler_scaled_is_unscaled(watch):
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    session = watch()
    scaler = ShardedGradScaler(device="cpu", init_scale=1024.0)
    train(nn.Linear(4, 3), lambda y: scaler.scale(F.mse_loss(y, torch.zeros_like(y))))
    step = session.made[0].steps[0]
    assert step.scalars["backward_loss", 0] == pytest.approx(float(step["MSELoss_output_0"]))


def test_value_is_that_of_the_call_even_if_changed_in_place(watch):
    session = watch()
    seen = []

    def loss(y):
        value = F.mse_loss(y, torch.zeros_like(y))
        seen.append(value.item())
        value /= 4
        return value

    train(nn.Linear(4, 3), loss)
    step = session.made[0].steps[0]
    assert step["MSELoss_output_0"] == pytest.approx(seen[0])
    assert step.scalars["backward_loss", 0] == pytest.approx(seen[0] / 4)


def test_several_calls_are_numbered_from_zero_in_each_step(watch):
    session = watch()
    train(nn.Linear(4, 3), lambda y: F.mse_loss(y, y.detach() + 1) + F.mse_loss(y, y.detach() + 2), steps=2)
    for step in session.made[0].steps:
        assert sorted(k[0] for k in step.values if "MSE" in k[0]) == ["MSELoss_output_0", "MSELoss_output_1"]


def test_unreduced_loss_is_a_tensor_of_its_shape(watch):
    session = watch()
    train(nn.Linear(4, 3), lambda y: F.cross_entropy(y, labels(), reduction="none").mean())
    assert session.made[0].steps[0]["CrossEntropyLoss_output_0"].shape == (6,)
    assert session.made[0].spec("CrossEntropyLoss_output_0")["variable_shape"]


def test_scripted_function_still_compiles(watch):
    watch()

    def loss(x, y):
        return F.mse_loss(x, y) + F.cross_entropy(x, y)

    scripted = torch.jit.script(loss)
    x = torch.rand(3, 3)
    assert scripted(x, x) == loss(x, x)


def test_functions_pickle_and_keep_their_signature(watch):
    import inspect
    import pickle
    before = inspect.signature(F.mse_loss)
    session = watch()
    assert inspect.signature(F.mse_loss) == before
    assert pickle.loads(pickle.dumps(F.mse_loss)) is F.mse_loss
    session.finish("closed")
    assert not hasattr(F.mse_loss, "_tdbg") and not hasattr(torch.autograd.backward, "_tdbg")
    assert torch.optim.Optimizer.__init__.__module__ == "torch.optim.optimizer"


def test_per_sample_gradients_are_left_alone(watch):
    watch()
    model = nn.Linear(4, 3)

    def loss(weight, x):
        return F.mse_loss(x @ weight.T, torch.zeros(3))

    grads = torch.func.vmap(torch.func.grad(loss), (None, 0))(model.weight, torch.ones(5, 4))
    assert grads.shape == (5, 3, 4)


def test_reentrant_and_other_checkpointing_count_losses_once(watch):
    from torch.utils.checkpoint import checkpoint
    session = watch()
    model = nn.Linear(4, 3)
    for reentrant in (True, False):
        train(model, lambda y: checkpoint(lambda z: F.mse_loss(z, torch.zeros_like(z)), y, use_reentrant=reentrant))
    for step in session.made[0].steps:
        assert [k for k in step.values if k[0] == "MSELoss_output_1"] == []


@pytest.mark.parametrize("detached", [False, True])
def test_batches_differ_whatever_becomes_of_them_in_a_model_that_is_called_by_parts(watch, detached):
    """Behind dead units all of them are nothing but zeros."""
    session = watch()
    torch.manual_seed(0)
    parts = nn.ModuleDict({"body": nn.Linear(16, 16), "head": nn.Linear(16, 4)})
    nn.init.constant_(parts["body"].bias, -100)
    optimizer = torch.optim.SGD(parts.parameters(), 0.01)
    batches = [torch.randn(32, 16) for _ in range(3)]
    for x in (*batches, batches[0], batches[0]):
        hidden = torch.relu(parts["body"](x))
        assert not hidden.any()
        optimizer.zero_grad()
        F.cross_entropy(parts["head"](hidden.detach() if detached else hidden), torch.arange(32) % 4).backward()
        optimizer.step()
    scalars = [{k: v for (k, _), v in s.scalars.items()} for s in session.made[0].steps]
    marks = [s["context/batch_fingerprint"] for s in scalars]
    assert len(set(marks[:3])) == 3 and marks[3] == marks[4] == marks[0], marks
    assert all(s["context/batch_size"] == 32 for s in scalars)


def test_elements_of_a_batch_are_said_where_they_change(watch):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for length in (5, 5, 7, 7, 5):
        optimizer.zero_grad()
        model(torch.randn(6, length, 4)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.randn(2, 4))
    scalars = [{k: v for (k, _), v in s.scalars.items()} for s in session.made[0].of(TRAIN)]
    assert [s.get("context/batch_elements") for s in scalars] == [6 * 5 * 4, None, 6 * 7 * 4, None, 6 * 5 * 4]
    assert all(s["context/batch_size"] == 6 for s in scalars)


def test_context_of_a_step(watch):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.AdamW([{"params": [model.weight], "lr": 0.5}, {"params": [model.bias]}], lr=0.25)
    for n in range(2):
        optimizer.zero_grad()
        model(torch.full((6, 4), 1.0)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.param_groups[1]["lr"] = 0.125
    run = session.made[0]
    scalars = [{k: v for (k, _), v in s.scalars.items()} for s in run.steps]
    assert [s["context/lr/AdamW/1"] for s in scalars] == [0.25, 0.125]
    assert scalars[0]["context/lr/AdamW/0"] == 0.5 and scalars[1]["context/optimizer_step/AdamW"] == 2
    assert scalars[0]["context/batch_size"] == 6 and scalars[0]["context/micro_steps"] == 1
    assert scalars[0]["context/batch_fingerprint"] == scalars[1]["context/batch_fingerprint"]
    assert scalars[0]["context/grad_norm"] > 1
    assert run.contexts["optimizer/AdamW"][0][1]["groups"][0]["parameters"] == ["Linear_weight"]
    assert len(run.contexts["optimizer/AdamW"]) == 1, "a learning rate is a series and writes no context"
    optimizer.param_groups[0]["weight_decay"] = 0.5
    model(torch.ones(6, 4)).sum().backward()
    optimizer.step()
    assert run.contexts["optimizer/AdamW"][1][1]["groups"][0]["options"]["weight_decay"] == 0.5


def test_context_can_be_switched_off(watch):
    session = watch(plan={"context": False})
    train(nn.Linear(4, 3), lambda y: (y ** 2).mean())
    assert session.made[0].contexts == {} and session.made[0].steps[0].scalars == {}


def test_absent_gradient_is_not_a_zero_gradient(watch):
    session = watch()
    model = nn.ModuleDict({"a": nn.Linear(4, 3), "b": nn.Linear(4, 3)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model["a"](torch.ones(2, 4)).sum().backward()
        optimizer.step()
    run = session.made[0]
    assert ("gradient/ModuleDict_b.weight", 0, 0) not in run.steps[1].values
    assert ("gradient/ModuleDict_a.weight", 0, 0) in run.steps[1].values
    assert run.steps[0].scalars["context/gradients_absent", 0] == 2
    assert run.contexts["gradients_absent"][0][1]["names"] == ["ModuleDict_b.weight", "ModuleDict_b.bias"]


RESETS = {
    "to None": lambda optimizer: optimizer.zero_grad(),
    "to zeros": lambda optimizer: optimizer.zero_grad(set_to_none=False),
    "past torch's count of writes": lambda optimizer: [
        p.grad.data.zero_() for g in optimizer.param_groups for p in g["params"] if p.grad is not None],
}


@pytest.mark.parametrize("way", [*RESETS, "not at all"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_that_nobody_resets_are_said(watch, way, kind):
    session = watch()
    model = nn.Linear(4, 3).to(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(6):
        if n % 2 == 0:      # two micro-steps
            RESETS.get(way, lambda _: None)(optimizer)
        model(torch.ones(2, 4, dtype=kind)).sum().backward()
        if n % 2:
            optimizer.step()
    kept = [s.scalars.get(("context/gradients_kept", 0), 0) for s in session.made[0].steps]
    assert kept == ([0, 1, 1] if way == "not at all" else [0, 0, 0])


def test_gradients_of_zeros_that_nobody_resets_are_as_good_as_reset(watch):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        (model(torch.ones(2, 4)) * 0).sum().backward()
        optimizer.step()
    assert not any(("context/gradients_kept", 0) in step.scalars for step in session.made[0].steps)


@pytest.mark.parametrize("call", [
    lambda predictions, target: F.mse_loss(predictions, target),
    lambda predictions, target: F.mse_loss(target=target, input=predictions),
], ids=["by position", "by name"])
def test_predictions_and_targets_of_two_shapes_are_said(watch, call):
    session = watch()
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for target in (torch.ones(5, 1), torch.tensor(1.0), torch.ones(5)):
        optimizer.zero_grad()
        call(model(torch.ones(5, 4)), target).backward()
        optimizer.step()
    (_, shapes), = session.made[0].contexts["loss_broadcast"]
    assert shapes == {"input": [5, 1], "target": [5]}


def test_each_of_two_optimizers_says_what_it_lacks(watch):
    session = watch()
    models = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
    first, second = torch.optim.SGD(models[0].parameters(), lr=0.1), torch.optim.Adam(models[1].parameters())
    for _ in range(3):
        models[0](torch.ones(2, 4)).sum().backward()
        first.step()
        second.step()
    contexts = session.made[0].contexts
    assert "gradients_absent/SGD" not in contexts
    (_, absent), = contexts["gradients_absent/Adam"]
    assert [name.rsplit(".", 1)[1] for name in absent["names"]] == ["weight", "bias"]


def test_what_is_replaced_is_one_function_and_pickles(watch):
    watch()
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        function = getattr(torch.nn.utils, name)
        assert function is getattr(torch.nn.utils.clip_grad, name) and hasattr(function, "_tdbg")
    for function in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad.clip_grad_value_, F.cross_entropy,
                     torch.autograd.backward, torch.amp.GradScaler.step):
        assert pickle.loads(pickle.dumps(functools.partial(function))).func is function


def test_gradients_before_clipping_on_request(watch):
    session = watch(plan={"collections": [{"name": "gradients_before_clip", "keep": True}]})
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (model(torch.ones(6, 4)) * 10).sum().backward()
    before = model.weight.grad.clone()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    step = session.made[0].steps[0]
    assert (step.values["gradient/Linear_weight", 0, 2] == before.numpy()).all()
    assert (step["gradient/Linear_weight"] == model.weight.grad.numpy()).all()
    assert (before != model.weight.grad).any()


def test_gradients_before_clipping_are_those_of_what_is_clipped(watch):
    session = watch(plan={"collections": [{"name": "gradients_before_clip", "keep": True}]})
    models = nn.Linear(4, 3), nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    before = []
    for step in range(3):
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            (model(torch.ones(6, 4)) * (10 + step)).sum().backward()
            before.append(model.weight.grad.clone())
            nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)
            optimizer.step()
    session.finish("closed")
    [run] = session.made
    assert run.twice == [] and len(run.steps) == 3
    for step, one, two in zip(run.steps, before[::2], before[1::2]):
        assert (step.values["gradient/Linear_weight", 0, 2] == one.numpy()).all()
        assert (step.values["gradient/Linear_1_weight", 0, 2] == two.numpy()).all()


CLASSES = torch.tensor([0, 1, 2, 2, 1, -100])


@pytest.mark.parametrize("loss, name, labels", [
    (lambda y: F.cross_entropy(y, CLASSES), "CrossEntropyLoss", CLASSES),
    (lambda y: nn.CrossEntropyLoss()(y, CLASSES), "CrossEntropyLoss", CLASSES),
    (lambda y: F.nll_loss(F.log_softmax(y, 1), target=CLASSES), "NLLLoss", CLASSES),
    (lambda y: F.binary_cross_entropy_with_logits(y[:, 0], (CLASSES > 1).float()), "BCEWithLogitsLoss", CLASSES > 1),
])
def test_labels_are_passed_on_where_they_are_wanted(watch, loss, name, labels):
    session = watch(kinds=("loss", "label"))
    train(nn.Linear(4, 3), loss, steps=2)
    run = session.made[0]
    assert run.spec(f"{name}_labels_0")["kind"] == "label"
    for step in run.steps:
        assert step[f"{name}_labels_0"].tolist() == [int(label) for label in labels]
        assert step[f"{name}_output_0"].shape == ()


def test_labels_nobody_asked_for_cost_no_copy(watch, monkeypatch):
    session = watch()
    kept = []
    monkeypatch.setattr(session.losses, "_keep", lambda pending, name, value, micro=0: kept.append(name))
    train(nn.Linear(4, 3), lambda y: F.cross_entropy(y, CLASSES))
    assert "CrossEntropyLoss_labels" not in kept and "CrossEntropyLoss_output" in kept


def test_labels_of_a_step_in_which_nothing_is_due_are_not_looked_at(watch):
    session = watch(kinds=("loss", "label"), plan={"summaries_every": 0}, due=lambda mode, step: False)
    train(nn.Linear(4, 3), lambda y: F.cross_entropy(y, CLASSES), steps=2)
    # The first step is not foretold: the run is opened in it.
    assert not session.losses.train and all(not step.values for step in session.made[0].steps)


def test_targets_that_are_no_classes_are_left_alone(watch):
    session = watch(kinds=("loss", "label"))
    train(nn.Linear(4, 3), lambda y: F.cross_entropy(y, torch.full((6, 3), 1 / 3)) + F.mse_loss(y, torch.zeros(6, 3)))
    assert not [name for name, _, _ in session.made[0].steps[0].values if "labels" in name]


def test_labels_of_micro_steps_are_those_of_the_step_together(watch):
    session = watch(kinds=("loss", "label"))
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for labels in ([0, 1, 2, 0], [2, 2]):
        F.cross_entropy(model(torch.ones(len(labels), 4)), torch.tensor(labels)).backward()
    optimizer.step()
    (step,) = session.made[0].steps
    assert step["CrossEntropyLoss_labels_0"].tolist() == [0, 1, 2, 0, 2, 2]
    assert step.values["CrossEntropyLoss_labels_0", 2, 0].tolist() == [2, 2]


def test_evaluations_have_their_labels(watch):
    session = watch(kinds=("loss", "label"))
    model = nn.Linear(4, 3)
    train(model, lambda y: F.cross_entropy(y, CLASSES))
    model.eval()
    with torch.no_grad():
        F.cross_entropy(model(torch.ones(6, 4)), CLASSES)
    session.finish("completed")
    assert session.made[0].eval[0]["CrossEntropyLoss_labels_0"].tolist() == CLASSES.tolist()


def test_a_number_is_copied_without_a_tensor_and_keeps_its_bits():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        for number in (0.1, -0.0, float("inf"), float("nan"), 1e-40):
            tensor = torch.tensor(number, dtype=dtype, requires_grad=True) * 1
            copy, bits = READER.number(tensor), tensor.detach().view({
                2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
            before = bits.item()
            bits.fill_(0)                  # what is written later is not seen
            kept = _losses._tensor(copy)
            assert kept.dtype == dtype and kept.dim() == 0 and kept.view(bits.dtype).item() == before
            assert copy.value == kept.item() or (copy.value != copy.value and kept.item() != kept.item())
    for other in (torch.ones(1), torch.tensor(3), torch.tensor(1 + 2j), torch.tensor(1.0, device="meta"), 2.5):
        assert READER.number(other) is None


def test_losses_that_come_as_an_iterator_are_trained_on(watch):
    session = watch()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for several in (lambda *losses: (loss for loss in losses), lambda *losses: map(torch.neg, losses), zip_first):
        optimizer.zero_grad()
        torch.autograd.backward(several(model(torch.ones(2, 4)).sum(), model(torch.ones(3, 4)).sum()))
        optimizer.step()
        assert (model.weight.grad.abs() == 5).all(), "of both"
    run = session.made[0]
    assert [len([k for k in step.values if k[0].startswith("backward_loss")]) for step in run.steps] == [2, 2, 2]
    with pytest.raises(TypeError, match="not iterable"):
        torch.autograd.backward(3)
    with pytest.raises(ZeroDivisionError):
        torch.autograd.backward(1 / 0 for _ in range(1))


def zip_first(*losses):
    return (loss for loss, in zip(losses))
