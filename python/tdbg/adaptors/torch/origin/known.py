"""What is known of the values on the edges of a graph: of what its nodes kept, and of their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ...guard import pass_on
from . import operations
from .graph import VIEWS, Edge, Graph, Unseen, base_name, is_python, is_result, leaf_of, saved
from .values import FINITE, Budget, Values, state_of, values_of


class Known:
    """:param losses: what is differentiated"""

    def __init__(self, losses: Iterable[torch.Tensor], budget: Budget | None = None) -> None:
        self.budget = budget or Budget()
        self.losses = [t for t in losses if t.grad_fn is not None]
        self.graph = Graph(self.losses)
        self._known: dict[Edge, torch.Tensor] = {}
        self._states: dict[Edge, str | None] = {}
        self._given: dict[Any, dict[str, torch.Tensor]] = {}     # what a node kept, by its names
        self._unseen: dict[Any, str] = {}
        self._looked: dict[tuple[Any, ...], str | None] = {}
        self._values: dict[int, Values | None] = {}
        self._bounds: dict[Edge, float | None] = {}
        self._read()

    def _read(self) -> None:
        for loss in self.losses:
            self._known[Edge(loss.grad_fn, loss.output_nr)] = loss
        for node in self.graph.nodes:
            leaf = leaf_of(node)
            if leaf is not None:
                self._known[Edge(node, 0)] = leaf
                continue
            given: dict[str, torch.Tensor] = {}
            for name, tensor in saved(node):
                if isinstance(tensor, Unseen):
                    self._unseen[node] = tensor.why
                    continue
                given[name] = tensor
                if tensor.grad_fn is not None:
                    self._known.setdefault(Edge(tensor.grad_fn, tensor.output_nr), tensor)
            self._given[node] = given

    def _state_of(self, tensor: torch.Tensor) -> str | None:
        try:
            key = tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        except Exception as error:
            pass_on(error)
            return None
        if key not in self._looked:
            self._looked[key] = state_of(tensor, self.budget)
        return self._looked[key]

    def state(self, edge: Edge) -> str | None:
        if edge not in self._states:
            tensor = self._known.get(edge)
            self._states[edge] = None if tensor is None else self._state_of(tensor)
        return self._states[edge]

    def _constants(self, node: Any, factors: bool = False) -> list[tuple[str, torch.Tensor]]:
        """What it kept of inputs that need no gradient. `factors`: whole numbers, too, where it computes with them."""
        if is_python(node):
            return []               # may be intermediate results of its own
        # In training a batch norm writes its running statistics, and reads none.
        unread = ("running_mean", "running_var") if getattr(node, "_saved_training", False) else ()
        return [(name, t) for name, t in self._given.get(node, {}).items()
                if t.grad_fn is None and not t.requires_grad and not is_result(name)
                and name not in unread
                and (t.is_floating_point() or t.is_complex() or factors and name in ("self", "other"))]

    def given_to(self, node: Any) -> dict[str, torch.Tensor]:
        """All that is known of what it was given and gave."""
        given = dict(self._given.get(node, {}))
        for n, (behind, number) in enumerate(node.next_functions):
            if behind is not None and (tensor := self._known.get(Edge(behind, number))) is not None:
                given.setdefault(f"input {n}", tensor)
        own = self._known.get(Edge(node, 0))
        if own is not None:
            given.setdefault("result", own)
        return given

    def _through_views(self, edge: Edge) -> Edge:
        while self.state(edge) is None and base_name(edge.node) in VIEWS and (behind := self.graph.inputs(edge.node)):
            edge = behind[0]
        return edge

    def _values_of(self, tensor: torch.Tensor) -> Values | None:
        if id(tensor) not in self._values:
            self._values[id(tensor)] = values_of(tensor, self.budget)
        return self._values[id(tensor)]

    def _is_finite(self, node: Any) -> bool:
        return self.state(Edge(node, 0)) == FINITE

    def bound(self, edge: Edge, depth: int = 0) -> float | None:
        if edge in self._bounds:
            return self._bounds[edge]
        self._bounds[edge] = None           # while it is found out
        tensor = self._known.get(edge)
        if tensor is not None and self.state(edge) == FINITE:
            values = self._values_of(tensor)
            most = None if values is None else values.largest
        elif depth > 64 or leaf_of(edge.node) is not None:
            most = None
        else:
            node = edge.node
            inputs = [self.bound(e, depth + 1) for e in self.graph.inputs(node)]
            given = {}
            for name, constant in self._constants(node, factors=True):
                values = self._values_of(constant)
                if values is None:
                    inputs.append(None)
                else:
                    given[name] = values
            most = operations.bound(node, inputs, given, self._given.get(node, {}))
        self._bounds[edge] = most
        return most
