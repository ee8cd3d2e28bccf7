"""Outputs and inputs of modules where the plan wants them; hooks that nobody notices."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

KINDS = ("weight", "bias", "gradient", "loss", "output", "input")


class Net(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 2, 3)
        self.relu = nn.ReLU(inplace=inplace)
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.relu(self.fc(x.flatten(1)))


def batch():
    return torch.linspace(-1, 1, 48).reshape(3, 1, 4, 4)


def train(model, steps=1, micro=1):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        for _ in range(micro):
            model(batch()).sum().backward()
        optimizer.step()


def modules_of(step):
    return sorted(k[0] for k in step.values if "_input_" in k[0] or "_output_" in k[0])


def test_names_count_calls_within_a_step(watch):
    session = watch(kinds=KINDS)
    train(Net(), steps=2)
    for step in session.made[0].steps:
        assert modules_of(step) == sorted(
            ["Net_input_0", "Net_output_0", "conv1_input_0", "conv1_output_0", "fc_input_0", "fc_output_0",
             "relu_input_0", "relu_input_1", "relu_output_0", "relu_output_1"])
    run = session.made[0]
    spec = run.spec("relu_output_0")
    assert (spec["module_kind"], spec["unit_axis"], spec["variable_shape"]) == ("relu", 1, True)
    assert run.spec("fc_output_0")["unit_axis"] == 1 and run.spec("conv1_output_0")["module_kind"] == "conv"


def test_only_what_is_wanted_is_hooked(watch):
    session = watch(names=("relu_output_0",))
    model = Net()
    train(model)
    assert modules_of(session.made[0].steps[0]) == ["relu_output_0"]
    assert not model.conv1._forward_hooks and len(model.relu._forward_hooks) == 1


def test_no_module_is_hooked_by_default(watch):
    watch()
    model = Net()
    train(model)
    assert not any(m._forward_hooks for m in model.children())


class Layers(nn.Module):
    """As most are written: parameters in parts, parts in a list."""

    def __init__(self, part):
        super().__init__()
        self.layers = nn.ModuleList(part() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize("make", [
    lambda: Layers(lambda: nn.Linear(4, 4)),
    lambda: Layers(Body),
    lambda: Layers(lambda: Layers(lambda: nn.Linear(4, 4))),
    Body,
    lambda: nn.Sequential(Body(), Layers(Body)),
], ids=["list", "list of blocks", "list of lists", "body", "sequence"])
def test_what_is_inside_of_a_model_that_was_entered_costs_nothing(watch, make):
    watch(kinds=())
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    hooked = [name for name, module in model.named_modules() if module._forward_hooks or module._forward_pre_hooks]
    # What a root consists of alone may be evaluated by itself: the loss of sentence-transformers.
    assert set(hooked) <= {"", "body"}, hooked


def test_value_is_that_before_the_next_module_overwrites_it(watch):
    session = watch(kinds=KINDS)
    torch.manual_seed(0)
    model = Net(inplace=True)
    expected = model.conv1(batch())
    assert (expected < 0).any()
    train(model)
    assert np.array_equal(session.made[0].steps[0]["conv1_output_0"], expected.detach().numpy())


def test_micro_steps_have_sub_keys(watch):
    session = watch(kinds=KINDS)
    train(Net(), micro=3)
    subs = sorted(sub for name, sub, _ in session.made[0].steps[0].values if name == "fc_output_0")
    assert subs == [0, 2, 3]


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_in_backward_is_not_seen_twice(watch, reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))

        def forward(self, x):
            return checkpoint(self.block, x, use_reentrant=reentrant)

    session = watch(kinds=KINDS)
    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    optimizer.step()
    assert not any(name.endswith("_1") for name in modules_of(session.made[0].steps[0]))
    assert "block.1_output_0" in modules_of(session.made[0].steps[0])


def test_evaluation_outputs_belong_to_the_eval_step(watch):
    session = watch(kinds=KINDS)
    model = Net()
    train(model)
    model.eval()
    with torch.no_grad():
        model(batch())
    session.finish("completed")
    run = session.made[0]
    assert [s.mode for s in run.steps] == [1, 2]
    assert "fc_output_0" in modules_of(run.steps[1]) and ("Net_fc.weight", 0, 0) not in run.steps[1].values


def test_root_that_is_never_called_hands_over_to_its_children(watch):
    class Lit(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 2))

        def training_step(self):
            return self.net(torch.ones(3, 4)).sum()

    session = watch(kinds=KINDS)
    model = Lit()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model.training_step().backward()
        optimizer.step()
    with torch.no_grad():
        model.eval()
        model.training_step()
    session.finish("completed")
    run = session.made[0]
    assert "net.0_output_0" in modules_of(run.steps[1]) and run.steps[1].scalars["context/batch_size", 0] == 3
    assert [s.mode for s in run.steps] == [1, 1, 2]


def test_hooked_model_is_saved_and_copied_without_us(watch):
    watch(kinds=KINDS)
    model = Net()
    train(model)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    assert b"tdbg" not in buffer.getvalue()
    buffer.seek(0)
    for other in (torch.load(buffer, weights_only=False), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(batch()), model(batch()))


def test_dictionary_and_tuple_outputs_are_walked(watch):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            y = self.fc(x)
            return {"a": y, "b": (y + 1, [y + 2]), "c": None, "d": 3}

    session = watch(kinds=KINDS)
    model = Odd()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4))["a"].sum().backward()
    optimizer.step()
    assert [n for n in modules_of(session.made[0].steps[0]) if n.startswith("Odd_out")] == [
        "Odd_output_0", "Odd_output_1", "Odd_output_2"]


def test_strided_output_is_read_in_its_own_order(watch):
    class Transpose(nn.Module):
        def forward(self, x):
            return x.t()

    session = watch(kinds=KINDS)
    model = nn.Sequential(nn.Linear(4, 2), Transpose())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    out = model(torch.arange(12.0).reshape(3, 4))
    out.sum().backward()
    optimizer.step()
    assert np.array_equal(session.made[0].steps[0]["1_output_0"], out.detach().numpy())


def test_exception_in_forward_does_not_confuse_the_next(watch):
    session = watch(kinds=KINDS)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError):
        model(torch.ones(3, 7, 4, 4))
    for _ in range(2):
        model(batch()).sum().backward()
        optimizer.step()
    assert "fc_output_0" in modules_of(session.made[0].steps[1])


@pytest.mark.parametrize("optimizer_first", [False, True])
def test_compiled_model_without_breaks_or_recompilation(watch, optimizer_first):
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    session = watch(kinds=KINDS)
    model = Net()
    if optimizer_first:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    if not optimizer_first:
        optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    for n in range(4):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(compiled(batch()), torch.zeros(3, 2)).backward()
        optimizer.step()
    run = session.made[0]
    for step in run.steps:
        assert {"conv1_output_0", "relu_output_0", "relu_output_1", "fc_output_0"} <= set(modules_of(step))
        assert ("Net_conv1.weight", 0, 0) in step.values and ("MSELoss_output_0", 0, 0) in step.values
        assert step.scalars["context/batch_size", 0] == 3
    assert not counters["graph_break"]
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("known", ["before it is wrapped", "after its first call"])
def test_the_entry_hooks_of_a_compiled_model_are_not_compiled(watch, known):
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    model = Net()
    compiled = None
    if known == "after its first call":
        compiled = torch.compile(model, backend="eager")
        compiled(batch())
    session = watch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if compiled is None:
        compiled = torch.compile(model, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(compiled(batch()), torch.zeros(3, 2)).backward()
        optimizer.step()
    assert all(step.scalars["context/batch_size", 0] == 3 for step in session.made[0].steps)
    assert counters["frames"]["total"] == 1 and not counters["graph_break"]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_loss_is_one_graph(watch, backend):
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    session = watch()
    model = Net()
    step = torch.compile(lambda x: torch.nn.functional.mse_loss(model(x), torch.zeros(3, 2)), backend=backend,
                         fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        step(batch()).backward()
        optimizer.step()
    steps = session.made[0].steps
    assert len(steps) == 3 and counters["stats"]["unique_graphs"] == 1
    assert all(("backward_loss", 0, 0) in s.values or ("backward_loss", 0) in s.scalars for s in steps)


def test_a_model_compiled_in_place_is_entered(watch):
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    session = watch()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.compile(backend="eager")
    for _ in range(2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch()), torch.zeros(3, 2)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        torch.nn.functional.mse_loss(model(batch()), torch.zeros(3, 2))
    session.finish("completed")
    run = session.made[0]
    assert [step.mode for step in run.steps] == [1, 1, 2] and not counters["graph_break"]
    assert all(step.scalars["context/batch_size", 0] == 3 for step in run.steps)
    assert ("MSELoss_output_0", 0, 0) in run.steps[2].values
    model(batch())                       # disarmed: what compile() left is called again
    assert type(model._compiled_call_impl).__name__ != "_CompiledCall"


def test_outputs_of_what_was_compiled_before_are_said_to_be_unseen(watch, capfd):
    import torch._dynamo
    torch._dynamo.reset()
    model = Net()
    compiled = torch.compile(model, backend="eager")
    compiled(batch())
    session = watch(kinds=KINDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(batch()).sum().backward()
        optimizer.step()
    assert capfd.readouterr().err.count("compiled before tdbg was attached") == 1
    assert all(("Net_conv1.weight", 0, 0) in step.values for step in session.made[0].steps)


@pytest.mark.parametrize("late", [False, True])
def test_what_else_was_compiled_is_no_matter_of_the_model(watch, capfd, late):
    import torch._dynamo
    torch._dynamo.reset()
    session = None if late else watch(kinds=KINDS)
    torch.compile(lambda x: x * 2, backend="eager")(batch())
    session = session or watch(kinds=KINDS)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        optimizer.zero_grad()
        compiled(batch()).sum().backward()
        optimizer.step()
    assert "compiled before tdbg was attached" not in capfd.readouterr().err and session.made[0].lost == []
    assert all(("conv1_output_0", 0, 0) in step.values for step in session.made[0].steps)


def test_a_function_that_was_compiled_before_and_calls_the_model_is_found(watch, capfd):
    """By what comes of it: its class was not compiled by itself, and nothing else says what is in a function."""
    import torch._dynamo
    torch._dynamo.reset()
    model = Net()
    compiled = torch.compile(lambda x: model(x) * 2, backend="eager")
    compiled(batch())
    session = watch(kinds=KINDS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        compiled(batch()).sum().backward()
        optimizer.step()
    said = capfd.readouterr().err + str(session.made[0].lost)
    assert said.count("compiled before tdbg was attached") == 1, said
    assert ("conv1_output_0", 0, 0) not in session.made[0].steps[-1].values


@pytest.mark.long
def test_inductor_selected_outputs_and_the_rest_at_the_optimizer(watch):
    """Compiled for real: outputs of one block, weights and gradients, all in one graph; the training is the same bit for bit."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    def train():
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled, hidden, x = torch.compile(model), [], torch.randn(3, 4)
        for _ in range(3):
            hidden.append(torch.tanh(torch.nn.functional.linear(x, model[0].weight, model[0].bias)).detach().numpy())
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(compiled(x), torch.zeros(3, 2)).backward()
            optimizer.step()
        return model.state_dict(), hidden

    bare, _ = train()
    counters.clear()
    session = watch(names={"1_output_0"})
    seen, hidden = train()
    assert all(torch.equal(bare[name], seen[name]) for name in bare)
    steps = session.made[0].steps
    assert len(steps) == 3 and counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    for step, value in zip(steps, hidden):
        np.testing.assert_allclose(step["1_output_0"], value, rtol=1e-6)
        assert ("gradient/Sequential_2.weight", 0, 0) in step.values


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        ao = torch.ao.quantization
        self.into, self.out = ao.QuantStub(), ao.DeQuantStub()
        self.conv, self.norm, self.relu, self.fc = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Linear(8, 2)

    def forward(self, x):
        return self.out(self.fc(self.relu(self.norm(self.conv(self.into(x)))).flatten(1)))


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_is_fused_and_quantised_after_its_hooks_is_called_as_without(watch):
    """torch moves the hooks to what replaces a module, and not what they asked to be called with."""
    ao = torch.ao.quantization

    def quantise():
        torch.manual_seed(0)
        model = Quantised()
        train(model)
        model.qconfig = ao.get_default_qat_qconfig("fbgemm")
        ao.fuse_modules_qat(model, [["conv", "norm", "relu"]], inplace=True)
        ao.prepare_qat(model, inplace=True)
        train(model, steps=2)
        model.eval()
        ao.convert(model, inplace=True)
        return model(batch())

    bare = quantise()
    session = watch(kinds=KINDS)
    assert torch.equal(quantise(), bare)
    session.finish("completed")
    fused = session.made[0].steps[2]
    assert ("relu_output_0", 0, 0) in fused.values and ("relu_input_0", 0, 0) in fused.values


@pytest.mark.filterwarnings("ignore")
def test_a_layer_quantised_in_place_by_itself_keeps_its_entry(watch):
    session = watch(kinds=KINDS)
    layer = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    model = nn.Sequential(layer)
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, inplace=True)
    assert type(model[0]) is not nn.Linear and model[0]._forward_pre_hooks
    model.eval()(torch.ones(5, 4))
    session.finish("completed")
    assert session.made[0].steps[1].scalars["context/batch_size", 0] == 5


def test_a_mode_of_the_scripts_sees_no_operation_of_ours_that_makes_a_tensor(watch):
    from torch.utils._python_dispatch import TorchDispatchMode
    seen = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    session = watch(kinds=KINDS)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Log():
        model(batch()).sum().backward()
        optimizer.step()
    assert "relu_output_1" in {name for name, _, _ in session.made[0].steps[0].values}
    assert "aten.empty.memory_format" not in seen
