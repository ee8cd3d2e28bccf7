"""Where gradients stopped being finite, while the loss was.

Backward frees what nodes kept as it goes, and only when the optimizer is about to step does anybody look at gradients.
So before it runs a reference is held to what can tell afterwards: what operations near the loss were given whose
derivative is not finite somewhere (`derivatives.SINGULAR`). Most graphs have none, and then nothing is held. Where they
are is found out by one walk; at each later backward their places are gone to directly: 0.2 us a node on the way, 2 us
for each, within `hold_micros` of a step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from . import derivatives, evidence, lines, operations
from .birth import INPUT, LABEL, OPERATION, UNSEEN, Birth, Outside, counted_of
from .evidence import Because
from .graph import Graph, Place, Places, TooLarge, Unseen, base_name, is_python, leaf_of, order_of, saved, spoken
from .lines import Line
from .values import FINITE, Budget, plain_of, samples_with_nan, state_of, values_of

MOST_HELD = 6
MOST_BACKWARDS = 8
MOST_BYTES = 16 << 20         # of one tensor that is held until the optimizer steps
SEARCHED = 2_000              # nodes nearest to the loss among which they are looked for
# of the first and of the last parameters: from each of them the graph is gone through once
MOST_LEAVES = 32
#: Behind these elements may be gone that were not finite; so many operations behind them are looked at.
LEAVES_OUT = {"Where", "MaskedFill", "NanToNum", "Index", "MaskedSelect"}
GUARDED_DEPTH = 3
MICROS_A_NODE, MICROS_A_TENSOR = 0.2, 2.0
AFFORDABLE_MICROS = 8.0       # of a step, or a thousandth of it


class Risk(NamedTuple):
    """An operation whose derivative may not be finite."""

    at: int                        # of the nodes gone to
    kind: type
    names: tuple[str, ...]         # of what it kept: under which of its attributes
    base: str
    node: str
    place: Place
    below: frozenset[int]          # id() of the parameters that its gradient goes to
    order: int
    nearest: frozenset[int]        # of those the ones of the layer before it, which its gradient comes to first


class Held(NamedTuple):
    """Of such an operation, what tells afterwards whether its derivative was."""

    risk: Risk
    exponent: Any
    kept: dict[str, torch.Tensor]
    stack: Any                     # lines.stack_of it, under anomaly detection


class _Plan:
    """Where in the graph of a loss what is held lies."""

    def __init__(self, root: type, hops: list[tuple[int, int]], risks: list[Risk]) -> None:
        self.root, self.hops, self.risks = root, hops, risks

    def follow(self, root: Any) -> list[Held] | None:
        """None: the graph is another one."""
        if type(root) is not self.root:
            return None
        nodes: list[Any] = [root]
        try:
            for parent, position in self.hops:
                node = nodes[parent].next_functions[position][0]
                if node is None:
                    return None
                nodes.append(node)
            held = []
            for risk in self.risks:
                node = nodes[risk.at]
                if type(node) is not risk.kind:
                    return None
                kept = {}
                for name in risk.names:
                    value = getattr(node, "_saved_" + name)
                    if value is not None:
                        kept[name] = value.detach()        # holds no graph
                stack = lines.stack_of(node) if torch.is_anomaly_enabled() else None
                held.append(Held(risk, getattr(node, "_saved_exponent", None), kept, stack))
        except (IndexError, RuntimeError):
            return None
        return held


class Holder:
    """What is held from before a backward until the optimizer steps.

    :param layer_of: as Walk's
    :param on_devices: also what is in a device's memory
    """

    def __init__(self, layer_of: Callable[[torch.Tensor], str], on_devices: bool = False) -> None:
        self._layer_of, self._on_devices = layer_of, on_devices
        self._plans: list[_Plan] = []
        self._calls = self._searches = 0
        self._last = 0.0
        # a list for each backward since the last step, and how many optimizers have stepped since without it
        self.held: list[list[Held]] = []
        self._ages: list[int] = []

    def before_backward(self, tensor: torch.Tensor) -> None:
        root = tensor.grad_fn
        if root is None:
            return
        self._calls += 1
        # A graph that had nothing to hold is looked at again at the 2nd, 4th, 8th, ... backward: it may be another one
        # by then.
        due = self._calls & (self._calls - 1) == 0 or not self._calls & 4095
        for n, plan in enumerate(self._plans):
            held = plan.follow(root)
            if held is not None and not (due and not held):
                if held:
                    self._hold(held)
                if n:
                    self._plans.insert(0, self._plans.pop(n))
                return
        if due or self._searches < 8:
            self._search(root, tensor)

    def _hold(self, held: list[Held]) -> None:
        self.held.append(held)
        self._ages.append(0)
        del self.held[:-MOST_BACKWARDS], self._ages[:-MOST_BACKWARDS]

    def forget(self) -> None:
        if self.held:
            self.held, self._ages = [], []

    def forget_of(self, parameters: list[torch.Tensor], others: int) -> None:
        """These are about to be updated and are finite. What leads to other parameters is kept for the optimizers that
        are still to step, `others` at most."""
        if not self.held:
            return
        mine = frozenset(map(id, parameters))
        kept = [(held, age + 1) for held, age in zip(self.held, self._ages)
                if age < others and not any(one.risk.below & mine for one in held)]
        self.held, self._ages = [held for held, _ in kept], [age for _, age in kept]

    def _search(self, root: Any, tensor: torch.Tensor) -> None:
        self._searches += 1
        now = time.perf_counter()
        micros, self._last = (now - self._last) * 1e6 if self._last else math.inf, now
        plan = self._plan(root, tensor, max(AFFORDABLE_MICROS, 1e-3 * micros if self._searches > 1 else 0.0))
        self._plans = [plan, *(p for p in self._plans if p.risks or p.root is not plan.root)][:4]
        held = plan.follow(root)
        if held:
            self._hold(held)

    def _plan(self, root: Any, tensor: torch.Tensor, affordable: float) -> _Plan:
        way: dict[Any, tuple[Any, int] | None] = {root: None}
        queue = [root]
        found: list[tuple[Any, tuple[str, ...]]] = []
        guarded: dict[Any, int] = {}        # behind what leaves elements out -> how far from the loss
        guarded_ones: list[tuple[Any, tuple[str, ...]]] = []
        used: set[tuple[Any, int]] = set()
        for node in queue:
            names = _worth_holding(node, self._on_devices, node in guarded)
            if names is not None and _has_no_vectors(node, used):
                names = None
            if names is not None:
                (found if base_name(node) in derivatives.SINGULAR else guarded_ones).append((node, names))
            depth = guarded.get(node, 0) if node in guarded or base_name(node) in LEAVES_OUT else None
            for position, (behind, number) in enumerate(node.next_functions):
                used.add((behind, number))
                if behind is not None and depth is not None and depth < GUARDED_DEPTH:
                    guarded.setdefault(behind, depth + 1)
                if behind is not None and behind not in way:
                    way[behind] = node, position
                    queue.append(behind)
            if len(queue) > SEARCHED:
                break
        found += guarded_ones          # of which few are at fault
        if not found:
            return _Plan(type(root), [], [])
        try:
            graph = Graph([tensor])
        except TooLarge:
            return _Plan(type(root), [], [])
        places = Places(graph, self._layer_of)
        at: dict[Any, int] = {root: 0}
        hops: list[tuple[int, int]] = []
        risks: list[Risk] = []
        for node, names in found[:MOST_HELD]:
            path = []
            step = node
            while step not in at:
                parent = way[step]
                assert parent is not None
                path.append((step, parent))
                step = parent[0]
            cost = (len(hops) + len(path)) * MICROS_A_NODE + (len(risks) + 1) * MICROS_A_TENSOR
            if cost > affordable:
                break
            for behind, (parent_node, position) in reversed(path):
                hops.append((at[parent_node], position))
                at[behind] = len(hops)
            below = frozenset(id(leaf) for n in graph.below([node]) if (leaf := leaf_of(n)) is not None)
            risks.append(
                Risk(
                    at[node],
                    type(node),
                    names,
                    base_name(node),
                    node.name(),
                    places.of(node),
                    below,
                    order_of(node),
                    _nearest(graph, node, self._layer_of),
                )
            )
        return _Plan(type(root), hops, risks)


def _nearest(graph: Graph, node: Any, layer_of: Callable[[torch.Tensor], str]) -> frozenset[int]:
    below = graph.below([node])
    users = {
        user: named
        for user, leaves in graph.users().items()
        if user in below and (named := [leaf for leaf in leaves if layer_of(leaf)])
    }
    return frozenset(map(id, users[max(users, key=order_of)])) if users else frozenset()


def _power_may_break(exponent: Any) -> bool:
    """At 0 where it is below 1, at what is negative where it is no whole number. Of many: one of them may be."""
    return not isinstance(exponent, (int, float)) or exponent < 1 or exponent != int(exponent)


def _has_no_vectors(node: Any, used: set[tuple[Any, int]]) -> bool:
    """A decomposition of whose vectors nothing comes into the loss."""
    numbers = derivatives.VECTORS.get(base_name(node))
    return numbers is not None and not any((node, number) in used for number in numbers)


def _worth_holding(node: Any, on_devices: bool, guarded: bool = False) -> tuple[str, ...] | None:
    """Under which names it keeps what tells whether its derivative is finite; None: it is finite whatever that is.
    `guarded`: it may have been given NaN, which something behind it leaves out."""
    base = base_name(node)
    if is_python(node) or base not in derivatives.SINGULAR and not (guarded and base in derivatives.GUARDED):
        return None
    if base == "Pow" and not guarded:
        exponent = getattr(node, "_saved_exponent", None)
        if not _power_may_break(exponent):
            return None
    kept = dict(saved(node))
    names = tuple(name for name in derivatives.DERIVATIVE_OF.get(base, ("self",)) if name in kept)
    for name in names:
        value = kept[name]
        if (
            isinstance(value, Unseen)
            or (value.device.type != "cpu" and not on_devices)
            or value.numel() * value.element_size() > MOST_BYTES
        ):
            return None
        if base == "Div" and value.dim() == 0 and not value.requires_grad and value.grad_fn is None and bool(value):
            return None             # by a number that is not 0
    if base == "Mul" and all(isinstance(one := kept[name], torch.Tensor) and one.numel() == 1 for name in names):
        return None                 # with a number
    return names or None


# Afterwards ----------------------------------------------------------------------------------------------------------


class Gradients(NamedTuple):
    """What the gradients of a step are. `finite`: with the largest magnitude in each."""

    bad: dict[int, str]            # id() of a parameter -> NAN, INF
    finite: dict[int, float]


def any_bad(gradients: Iterable[torch.Tensor]) -> bool:
    """Waits for a device once."""
    plain = [p for g in gradients if (p := plain_of(g)) is not None and p.is_floating_point()]
    return bool(plain) and not bool(torch.stack([torch.isfinite(p).all().to(plain[0].device) for p in plain]).all())


def states_of(
    parameters: Iterable[torch.Tensor], gradient_of: Callable[[torch.Tensor], torch.Tensor | None], budget: Budget
) -> Gradients:
    bad, finite = {}, {}
    for parameter in parameters:
        gradient = gradient_of(parameter)
        if gradient is None:
            continue
        state = state_of(gradient, budget)
        if state == FINITE:
            values = values_of(gradient, budget)
            finite[id(parameter)] = values.largest if values is not None else math.nan
        elif state is not None:
            bad[id(parameter)] = state
    return Gradients(bad, finite)


def find(gradients: Gradients, held: list[list[Held]], losses: list[torch.Tensor],
         layer_of: Callable[[torch.Tensor], str], reduced_over: int = 1) -> Birth:
    """:param losses: what was differentiated last, if anybody still holds it: its graph says what lies between which
        layers.
    :param reduced_over: so many ranks' gradients were averaged
    """
    bad = frozenset(gradients.bad)
    for n, of_one in reversed([*enumerate(held)]):
        for risk, exponent, kept, stack in sorted(of_one, key=lambda h: -h.risk.order):
            # What began nearer to the loss would be in layers that are not below it; what began farther away not in the
            # nearest.
            if not bad <= risk.below or risk.nearest and not bad & risk.nearest:
                continue
            because = derivatives.derivative_proof(risk.base, exponent, kept)
            if because is not None:
                if len(held) > 1:
                    because = Because(
                        f"{because.text}, in backward call {n + 1} of {len(held)}", {**because.numbers, "micro_step": n}
                    )
                return _born(risk.base, risk.node, risk.place, because, lines.of_stack(stack))
    return _by_structure(gradients, losses, layer_of, reduced_over)


def _born(base: str, node: str, place: Place, because: Because, line: Line | None) -> Birth:
    short = operations.short_of(base)
    return Birth(
        OPERATION, place, short, node, f"the derivative of {short}", because=because.text, numbers=because.numbers,
        line=line,
    )


def came_in(gradients: Gradients, parameters: list[torch.Tensor], outside: Iterable[Outside],
            layer_of: Callable[[torch.Tensor], str]) -> Birth | None:
    """Labels or an input that are not finite and that the script leaves out of the loss, whose derivatives are taken
    all the same.

    Of labels that is certain: a loss function was given them. Of an input it is where a layer's product has a gradient
    that is not finite and its bias has one that is: what came back was finite, so what the layer was given was not.
    """
    bad = [(one, values) for one in outside if one.what in (INPUT, LABEL) and not one.changed
           and (values := values_of(one.tensor, Budget())) is not None and (values.nan or values.posinf)]
    labels = [found for found in bad if found[0].what == LABEL]
    if labels:
        (found, values), = labels[:1]
    elif len(bad) == 1 and _given_what_is_bad(gradients, parameters, layer_of):
        (found, values), = bad
    else:
        return None
    rows = samples_with_nan(found.tensor)
    return Birth(found.what, name=found.name, because=counted_of(values) + (rows.words() if rows is not None else "")
                 + "; the loss leaves them out, its derivative does not",
                 numbers={"nan": values.nan, "inf": values.inf, "values": values.count})


def _given_what_is_bad(gradients: Gradients, parameters: list[torch.Tensor],
                       layer_of: Callable[[torch.Tensor], str]) -> bool:
    """Of each layer with a gradient that is not finite that of the bias is."""
    layers = {layer_of(p) for p in parameters if id(p) in gradients.bad}
    biases = {layer_of(p) for p in parameters if p.dim() == 1 and id(p) in gradients.finite}
    return bool(layers) and "" not in layers and layers <= biases


def _by_structure(
    gradients: Gradients, losses: list[torch.Tensor], layer_of: Callable[[torch.Tensor], str], reduced_over: int
) -> Birth:
    """Of the graph, whose nodes have freed what they kept (all but those of a graph that was retained)."""
    largest = max((m for m in gradients.finite.values() if m == m), default=0.0)
    try:
        graph = Graph(losses)
    except TooLarge:
        return Birth(UNSEEN, because="the graph of the loss is too large to be looked at")
    if not graph.nodes:
        return Birth(UNSEEN, because="nothing holds the loss any more, and with it went what lies between the layers")
    leaves = {id(leaf): node for node in graph.nodes if (leaf := leaf_of(node)) is not None}
    bad, bad_ids = [leaves[i] for i in gradients.bad if i in leaves], frozenset(gradients.bad)
    if len(bad) < len(gradients.bad):
        return Birth(UNSEEN, because="not all gradients that are not finite come from the last backward")
    # All that are not finite got it from these: the operations above each of them.
    some = bad if len(bad) <= 2 * MOST_LEAVES else bad[:MOST_LEAVES] + bad[-MOST_LEAVES:]
    above = set.intersection(*(graph.above([leaf]) for leaf in some)) - set(bad)
    places = Places(graph, layer_of)
    nodes = sorted(above, key=order_of)
    for node in reversed(nodes):               # the nearest to the loss first, as backward does
        if base_name(node) in derivatives.SINGULAR and not is_python(node):
            kept = {name: value for name, value in saved(node) if not isinstance(value, Unseen)}
            because = derivatives.derivative_proof(base_name(node), getattr(node, "_saved_exponent", None), kept)
            if because is not None and bad_ids & (_nearest(graph, node, layer_of) or bad_ids):
                return _born(base_name(node), node.name(), places.of(node), because, lines.of_node(node))
    # What is not finite behind an operation reaches all that it was computed from.
    fine = [leaves[i] for i in gradients.finite if i in leaves]
    reaches_fine = graph.above(fine) if fine else set()
    nodes = [n for n in nodes if n not in reaches_fine] or nodes
    candidates = [n for n in nodes if is_python(n) or base_name(n) in derivatives.SINGULAR and _worth_naming(n)]
    place = places.of(nodes[0]) if nodes else Place()
    names = list(dict.fromkeys(operations.short(n) for n in candidates))
    where = place.inside or place.after
    said = f"it began in the backward, between {spoken(where)} and the loss" if where else "it began in the backward"
    if reduced_over > 1:
        return Birth(
            UNSEEN,
            place,
            candidates=names[:8],
            because=f"the gradients are averaged over {reduced_over} ranks, and on this one nothing says where it "
                    "began: see what the "
            "others say",
        )
    customs = [n for n in candidates if is_python(n)]
    if len(candidates) == 1 and customs and largest < 1e18:
        name = operations.short(customs[0])
        return Birth(OPERATION, places.of(customs[0]), name, customs[0].name(), "the backward of the custom "
                                                                                f"function {name}",
                     because="all other operations that lead to these gradients have a derivative that is "
                             "finite", line=lines.of_node(customs[0]))
    if largest > 1e30:
        return Birth(UNSEEN, place, because=f"{said}; gradients nearer to the loss reach "
                                            f"{evidence.number(largest)}: they grew until they "
                                            "overflowed", numbers={"largest": largest}, candidates=names[:8])
    if names:
        return Birth(UNSEEN, place, because=f"{said}, where these operations have derivatives that are not finite "
                                            "everywhere: "
                                            f"{', '.join(names[:8])}; what they were taken at was freed by "
                                            "then", candidates=names[:8])
    half = next((evidence.name_of(dtype) for n in nodes if (dtype := evidence.dtype_of(n)) is torch.float16), "")
    return Birth(UNSEEN, place, because="no operation that leads to the loss is known to have a derivative that is not "
                                        "finite there: it began in the backward, or in what was done to the gradients "
                                        "since" + (f"; part of that backward is in {half}, which holds 65,504 at most "
                                                   "(scale the loss, with GradScaler)" if half else ""))


def _worth_naming(node: Any) -> bool:
    """Is its derivative infinite anywhere, by what it still has? A division by a number, or a square, is not."""
    if base_name(node) == "Pow":
        exponent = getattr(node, "_saved_exponent", None)
        return _power_may_break(exponent)
    if base_name(node) == "Div":
        return len([behind for behind, _ in node.next_functions if behind is not None]) > 1
    return True
