"""What models are called with, and return, beside tensors: the training does not wait while we look through it."""

import time

import numpy as np
import pytest
import torch
from torch import nn

from tdbg.adaptors.structure import MAX_DEPTH, MAX_LOOKS, every, first


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)

    def forward(self, words, vocabulary):
        return self.embedding(torch.tensor([vocabulary[w] % 10 for w in words]))


def fifty_steps_ms(vocabulary):
    model = Words()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = time.perf_counter()
    for _ in range(50):
        optimizer.zero_grad()
        model(["w1", "w5"], vocabulary).sum().backward()
        optimizer.step()
    return (time.perf_counter() - start) * 1e3


def test_a_large_dict_that_is_passed_by_is_not_walked(watch):
    session = watch()
    small = fifty_steps_ms({f"w{n}": n for n in range(10)})
    large = fifty_steps_ms({f"w{n}": n for n in range(50_000)})
    assert len(session.made[0].train) == 100
    assert large < 5 * small + 2000, f"{large:.0f} ms of a small one's {small:.0f}"


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, graph):
        return {"y": self.linear(graph["x"]), "graph": graph}


def test_a_dict_that_contains_itself_is_walked_once(watch):
    session = watch(kinds=("weight", "output", "input"))
    model = Graph()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        graph = {"name": "g", "x": torch.ones(2, 4)}
        graph["self"] = graph
        model(graph)["y"].sum().backward()
        optimizer.step()
    assert session.listening and not session.made[0].lost
    step = session.made[0].steps[11]
    assert step.scalars["context/batch_size", 0] == 2
    assert np.array_equal(step["Graph_output_1"], np.ones((2, 4))), "the input, which is returned as well"
    assert {name for name, _, _ in step.values if name.startswith("Graph_")} == {
        "Graph_linear.weight", "Graph_input_0", "Graph_output_0", "Graph_output_1"}


def test_the_batch_is_the_outermost_tensor():
    inner, outer = torch.ones(1), torch.ones(2)
    assert first(torch.Tensor, ([inner], outer), ()) is outer
    assert first(torch.Tensor, ([{"deep": (inner,)}],), {"by_name": outer}.values()) is outer
    assert first(torch.Tensor, ({f"feature{n}": outer for n in range(200)},)) is outer
    assert first(torch.Tensor, (["word"] * 200, outer)) is outer
    assert first(torch.Tensor, (["word"] * 200, [outer])) is None, "a bounded look"
    assert first(torch.Tensor) is None


def test_everything_comes_in_order_and_twice_where_it_is_twice():
    pair = [1, 2]
    assert list(every(int, (0, pair, {"a": pair, "b": (3, "x")}))) == [0, 1, 2, 1, 2, 3]
    assert list(every(int, ({"a": 1}, [2]), dicts=False)) == [2]
    assert list(every(int, 5)) == [5] and list(every(int, "x")) == []


def test_what_is_not_looked_at_is_said():
    cuts = []
    assert len(list(every(int, list(range(MAX_LOOKS + 9)), cut=lambda: cuts.append("many")))) == MAX_LOOKS - 1
    chain = 1
    for _ in range(MAX_DEPTH + 1):
        chain = [chain]
    assert list(every(int, chain[0], cut=lambda: cuts.append("deep"))) == [1] and cuts == ["many"]
    assert list(every(int, chain, cut=lambda: cuts.append("deep"))) == [] and cuts == ["many", "deep"]


@pytest.mark.parametrize("depth", [100_000])
def test_depth_is_no_recursion(depth):
    chain = torch.ones(1)
    for _ in range(depth):
        chain = (chain, 0)
    assert list(every(torch.Tensor, chain)) == []
    while isinstance(chain, tuple):     # freeing it recursively would be the interpreter's own overflow
        chain = chain[0]
