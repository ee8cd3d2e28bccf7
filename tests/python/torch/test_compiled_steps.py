"""Optimizers that step inside a compiled function."""

import subprocess
import sys

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.filterwarnings("error:Dynamo does not know")


class Plain(torch.optim.Optimizer):
    """One that Dynamo can have in one graph; torch's own break it."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self):
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(0.1 * p.grad)


def train(make, fullgraph, steps=4):
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    optimizer = make(model.parameters())
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=fullgraph)
    weights = []
    for n in range(steps):
        weights.append(model[0].weight.detach().clone())
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.ones(2, 4)), torch.zeros(2, 2)).backward()
        step()
    return weights, model.state_dict(), (counters["stats"]["unique_graphs"], counters["stats"]["calls_captured"])


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD, Plain])
def test_a_compiled_step_is_recorded_and_what_records_it_is_not_compiled(watch, make):
    _, bare, graphs = train(make, False)
    session = watch()
    before, seen, same = train(make, False)
    assert all(torch.equal(bare[name], seen[name]) for name in bare)
    assert same == graphs
    steps = session.made[0].steps
    assert len(steps) == 4 and session.made[0].lost == []
    for step, weight in zip(steps, before):
        assert (step["Sequential_0.weight"] == weight.numpy()).all(), "as it was before the update"
        assert ("gradient/Sequential_2.weight", 0, 0) in step.values and ("MSELoss_output_0", 0, 0) in step.values


def test_a_step_that_must_be_one_graph_is_let_be(watch, capfd):
    _, bare, graphs = train(Plain, True)
    session = watch()
    _, seen, same = train(Plain, True)
    session.finish("completed")
    assert all(torch.equal(bare[name], seen[name]) for name in bare) and same == graphs
    assert capfd.readouterr().err.count("its steps are not seen") == 1


def test_the_adaptor_does_not_load_the_compiler():
    """An optimizer does; a program that has none is spared the seconds."""
    program = f"import sys; sys.path[:] = {sys.path!r}; import torch{{}}; print('torch._dynamo' in sys.modules)"
    told = [subprocess.run([sys.executable, "-c", program.format(more)], text=True, capture_output=True, timeout=120, check=True).stdout
            for more in ("", ", tdbg.adaptors.torch.session")]
    assert told == ["False\n"] * 2
