"""Gradients of modules' outputs: what autograd says arrives there, and a training that is the same to the bit."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

PREFIX = "output_gradient/"
KINDS = ("output_gradient",)


class Net(nn.Module):
    def __init__(self, inplace=False):
        super().__init__()
        self.conv1, self.relu, self.fc = nn.Conv2d(1, 2, 3), nn.ReLU(inplace), nn.Linear(8, 2)

    def forward(self, x):
        x = self.relu(self.conv1(x))
        return self.relu(self.fc(x.flatten(1)))


def batch(seed=0):
    return torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed))


def train(model, micro=1, steps=1, loss=lambda output: (output ** 2).sum()):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for n in range(micro):
            loss(model(batch(10 * step + n))).backward()
        optimizer.step()


def by_autograd(model, x, loss=lambda output: (output ** 2).sum()):
    """name -> gradient of the first output of each module, by autograd.grad over outputs that hooks of the test kept."""
    kept, handles = {}, []
    for name, module in model.named_modules():
        def keep(_, __, output, name=name):
            if name not in kept:
                kept[name] = output[0] if isinstance(output, tuple) else output
        handles.append(module.register_forward_hook(keep))
    value = loss(model(x))
    grads = torch.autograd.grad(value, list(kept.values()), allow_unused=True)
    for handle in handles:
        handle.remove()
    return dict(zip(kept, grads, strict=True))


def names(step):
    return sorted(name.removeprefix(PREFIX) for name, _, _ in step.values)


@pytest.mark.parametrize("force_lane", [False, "cpu"])
def test_it_is_what_autograd_says(watch, force_lane):
    torch.manual_seed(0)
    model = Net()
    expected = by_autograd(model, batch())
    session = watch(kinds=KINDS) if not force_lane else watch(kinds=KINDS, force_lane=force_lane)
    train(model)
    session.finish("completed")
    step = session.made[0].steps[0]
    # A lane hands over small tensors as they are, and of others what it has computed.
    got = {*step.values, *step.summaries}
    assert {name for name, _, _ in got} == {PREFIX + n for n in
                                            ("Net_output_0", "conv1_output_0", "fc_output_0", "relu_output_0", "relu_output_1")}
    if not force_lane:
        for module, name in (("conv1", "conv1_output_0"), ("fc", "fc_output_0"), ("relu", "relu_output_0"), ("", "Net_output_0")):
            assert np.array_equal(step[PREFIX + name], expected[module].numpy()), name


def test_an_output_that_is_overwritten_in_place_has_the_gradient_of_what_it_was(watch):
    torch.manual_seed(0)
    model, twin = Net(inplace=True), Net()
    twin.load_state_dict(model.state_dict())
    expected = by_autograd(twin, batch())
    session = watch(kinds=KINDS)
    train(model)
    assert np.array_equal(session.made[0].steps[0][PREFIX + "conv1_output_0"], expected["conv1"].numpy())


def test_micro_steps_have_the_sub_keys_of_their_outputs(watch):
    session = watch(kinds=("output", "output_gradient"))
    train(Net(), micro=3, steps=2)
    for step in session.made[0].steps:
        subs = {what: sorted(sub for name, sub, _ in step.values if name == what)
                for what in ("fc_output_0", PREFIX + "fc_output_0")}
        assert subs["fc_output_0"] == subs[PREFIX + "fc_output_0"] == [0, 2, 3]
    assert not session.made[0].twice


def test_two_passes_over_one_graph_stand_beside_each_other(watch):
    session = watch(kinds=KINDS)
    model = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    output = model(torch.ones(3, 4))
    output.sum().backward(retain_graph=True)
    (2 * output).sum().backward()
    optimizer.step()
    values = session.made[0].steps[0].values
    assert [values[PREFIX + "0_output_0", sub, 0].max() for sub in (0, 2)] == [1, 2]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_recomputed_in_backward_is_seen_once(watch, reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2)

        def forward(self, x):
            return self.head(checkpoint(self.block, x, use_reentrant=reentrant))

    session = watch(kinds=KINDS)
    model = Checkpointed()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    optimizer.step()
    step = session.made[0].steps[0]
    assert names(step) == ["Checkpointed_output_0", "block.0_output_0", "block.1_output_0", "block_output_0", "head_output_0"]
    assert len(step.values) == 5 and not session.made[0].twice


def test_tuples_have_a_number_each_and_what_needs_no_gradient_has_none(watch):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 1)
            self.teacher = nn.Linear(4, 3).requires_grad_(False)

        def forward(self, x):
            y, h = self.rnn(x)
            return self.head(y[:, -1] + h[0] + self.teacher(x[:, 0]))

    session = watch(kinds=KINDS)
    model = Frozen()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 5, 4)).sum().backward()
    optimizer.step()
    assert names(session.made[0].steps[0]) == ["Frozen_output_0", "head_output_0", "rnn_output_0", "rnn_output_1"]


def test_a_step_that_is_not_due_and_an_evaluation_hook_nothing(watch):
    session = watch(kinds=KINDS, due=lambda mode, step: step % 2 == 0)
    model = Net()
    train(model, steps=3)
    model.eval()
    with torch.no_grad():
        model(batch())
    session.finish("completed")
    assert [bool(step.values) for step in session.made[0].steps if step.mode == 1 and step.mode_step != 1] == [True, True]
    assert not any(step.values for step in session.made[0].steps if step.mode_step == 1 or step.mode != 1)


def test_only_what_is_wanted_is_hooked(watch):
    watch(names=(PREFIX + "fc_output_0",))
    model = Net()
    train(model)
    assert len(model.fc._forward_hooks) == 1 and not model.conv1._forward_hooks


@pytest.mark.parametrize("micro", [1, 2])
def test_the_training_is_the_same_to_the_bit(watch, micro):
    def trained(watched):
        torch.manual_seed(3)
        if watched:
            watch(kinds=("output", "output_gradient", "weight", "gradient"))
        model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(16, 4))
        train(model, micro=micro, steps=6)
        return torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(trained(False), trained(True))


def test_a_compiled_model_is_said_to_have_none_before_its_first_step_is_over(watch):
    session = watch(kinds=KINDS)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Flatten())
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        compiled(torch.ones(2, 16)).sum().backward()
        if step == 0:
            (cause, count, text), = session.made[0].lost
            assert (cause, count) == ("unsupported", 4) and "(Sequential, 0, 1, ...)" in text
        optimizer.step()
    session.finish("completed")
    assert len(session.made[0].lost) == 1, "once"


def test_of_compiled_blocks_it_is_said_and_the_others_have_theirs(watch):
    session = watch(kinds=KINDS)
    model = nn.Sequential(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 4))
    model[0].compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    run = session.made[0]
    assert [(count, text.split("(")[1].split(")")[0]) for _, count, text in run.lost] == [(3, "0, 0.0, 0.1")]
    assert names(run.steps[0]) == ["1_output_0", "Sequential_output_0"]


def test_a_compiled_function_is_said_to_have_none_at_the_end(watch):
    session = watch(kinds=KINDS)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = torch.compile(lambda x: model(x).sum(), backend="eager")
    loss(torch.ones(2, 16)).backward()
    optimizer.step()
    session.finish("completed")
    assert [count for *_, text in session.made[0].lost if "none was seen" in text for count in [1]] == [1]
