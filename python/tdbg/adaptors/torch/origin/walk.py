"""From a loss that is not finite down to where that began, through what the nodes of its graph kept. Nothing is
computed again.

A tensor that a node kept says which node made it: so the values of many edges of the graph are known, and the walk goes
down through those that are not finite. Where it ends, an operation gave what is not finite out of finite inputs, or a
parameter, buffer, input or label came in so. Edges of which nobody kept the values are gone through; then the birth is
in one of several operations, and those that cannot have done it (operations.KEEPS, operations.bound) are left out. What
stays ambiguous is said to be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from ...guard import pass_on
from . import evidence, lines, operations, proofs
from .birth import BUFFER, CONSTANT, INPUT, LABEL, OPERATION, PARAMETER, UNSEEN, Birth, Outside, counted_of
from .evidence import Because
from .graph import CHECKPOINTED, VIEWS, Edge, Place, Places, base_name, is_python, leaf_of, order_of
from .known import Known
from .values import INF, NAN, Budget, Values, samples_with_nan

GROWN = 1e4       # no parameter of a training that goes well is larger
TOO_LARGE = 1e9   # nor is an input

class _Source(NamedTuple):
    state: str
    node: Any                            # None: a tensor that came in
    region: list[Any]                    # the nodes in one of which it began
    tensor: torch.Tensor | None = None
    name: str = ""                       # under which `node` kept it
    leaf: bool = False


class Walk(Known):
    """:param losses: what is differentiated; at least one of them is not finite.
    :param parameter_name: of a leaf: its name, None for one that is nobody's
    :param layer_of: of a leaf: the name of its layer
    :param updated: has an optimizer stepped yet?
    """

    def __init__(
        self,
        losses: Iterable[torch.Tensor],
        parameter_name: Callable[[torch.Tensor], str | None],
        layer_of: Callable[[torch.Tensor], str],
        outside: Iterable[Outside] = (),
        budget: Budget | None = None,
        updated: bool = True,
    ) -> None:
        super().__init__(losses, budget)
        self._updated = updated
        self.places = Places(self.graph, layer_of)
        self.parameter_name, self.layer_of = parameter_name, layer_of
        self.outside = list(outside)

    # Going down -----------------------------------------------------------------------------------------------------

    def find(self) -> Birth:
        try:
            birth = self._birth(self._sources())
        finally:
            nodes, looked, size = len(self.graph.nodes), self.budget.looked, self.budget.bytes
        birth.nodes, birth.tensors, birth.bytes = nodes, looked, size
        return birth

    def _sources(self) -> list[_Source]:
        todo = [edge for edge in self.graph.roots if self.state(edge) in (NAN, INF)]
        seen = set(todo)
        sources: list[_Source] = []
        while todo:
            edge = todo.pop()
            state = self.state(edge) or NAN
            leaf = leaf_of(edge.node)
            if leaf is not None:
                sources.append(_Source(state, edge.node, [], leaf, leaf=True))
                continue
            region, bad, constants = self._around(edge.node)
            # A NaN comes of a NaN where there is one beside infinities.
            nan = [e for e in bad if self.state(e) == NAN] if state == NAN else []
            for node, name, tensor in constants:
                constant = self._state_of(tensor)
                if constant == NAN or constant == INF and not nan:
                    sources.append(_Source(constant, node, [], tensor, name))
            for found in nan or bad:
                if found not in seen:
                    seen.add(found)
                    todo.append(found)
            if (
                state == NAN
                and not nan
                and (bad or constants)
                and not any(self._state_of(t) == NAN for _, _, t in constants)
            ):
                sources.append(_Source("became", edge.node, region))
            elif not bad and not constants:
                sources.append(_Source(state, edge.node, region))
        return sources

    def _around(self, node: Any) -> tuple[list[Any], list[Edge], list[tuple[Any, str, torch.Tensor]]]:
        """(the node and those behind it through edges of which nothing is known, edges into them that are not finite,
        constants into them that are not finite)"""
        region, bad, constants = [node], [], []
        todo, seen = [node], {node}
        while todo:
            current = todo.pop()
            for name, tensor in self._constants(current):
                if self._state_of(tensor) in (NAN, INF):
                    constants.append((current, name, tensor))
            for edge in self.graph.inputs(current):
                state = self.state(edge)
                if state in (NAN, INF):
                    bad.append(edge)
                elif state is None and edge.node not in seen:
                    seen.add(edge.node)
                    if leaf_of(edge.node) is None:
                        region.append(edge.node)
                        todo.append(edge.node)
        return region, bad, constants

    # What it means --------------------------------------------------------------------------------------------------

    def _birth(self, sources: list[_Source]) -> Birth:
        if not sources:
            return Birth(UNSEEN, because="the loss was computed from nothing that has a gradient and is not finite")
        nan = [s for s in sources if s.state == NAN]
        if nan:
            return self._of(min(nan, key=self._when))
        became = [s for s in sources if s.state == "became"]
        made = [s for s in sources if s.state == INF and not self._is_mask(s)]
        if made:
            birth = self._of(min(made, key=self._when))
            if became and birth.is_seen:
                at = [
                    n
                    for n in min(became, key=self._when).region
                    if base_name(n) not in VIEWS
                    and any(self.state(self._through_views(e)) == INF for e in self.graph.inputs(n))
                ]
                if len(at) == 1:
                    where = self.places.of(at[0]).words()
                    birth.became_nan = f"the infinity became NaN in {operations.words(at[0])}" + (
                        f", {where}" if where else ""
                    )
            return birth
        # Infinities that were put on purpose: what made a NaN of them, or a loss, is what went wrong.
        if became:
            return self._of(min(became, key=self._when)._replace(state=NAN))
        for node in self.graph.nodes:
            if self.state(Edge(node, 0)) == INF and self._proof(node, INF, [node]) is not None:
                return self._did(node, INF, [node])
        return self._let_through() or self._of(min(sources, key=self._when))

    @staticmethod
    def _when(source: _Source) -> tuple[int, int]:
        """What came in counts before what was computed from it."""
        if source.leaf:
            return -1, 0
        return order_of(source.node), 0 if source.tensor is not None else 1

    def _is_mask(self, source: _Source) -> bool:
        """-infinity that is there so that a softmax leaves something out."""
        if source.leaf:
            return False
        if source.tensor is not None:
            if base_name(source.node) not in operations.MASKS and "Attention" not in base_name(source.node):
                return False
            values = self._values_of(source.tensor)
            return values is not None and not values.posinf
        candidates = [n for n in source.region if self._can(n)]
        if not candidates or any(base_name(n) not in operations.MASKS for n in candidates):
            return False
        own = self._known.get(Edge(source.node, 0))
        values = self._values_of(own) if own is not None else None
        return values is not None and not values.posinf

    def _of(self, source: _Source) -> Birth:
        if source.tensor is not None:
            return self._came_in(source)
        return self._computed(source)

    def _came_in(self, source: _Source) -> Birth:
        tensor = source.tensor
        assert tensor is not None
        values = self._values_of(tensor) or Values(tensor.numel())
        text = counted_of(values)
        numbers = {"nan": values.nan, "inf": values.inf, "values": values.count}
        if source.leaf:
            name = self.parameter_name(tensor)
            return Birth(
                PARAMETER,
                Place(inside=self.layer_of(tensor)),
                name=name or "a tensor that needs a gradient",
                because=text,
                numbers=numbers,
            )
        node = source.node
        birth = Birth(
            CONSTANT,
            self.places.of(node),
            operations.short(node),
            node.name(),
            operations.words(node),
            because=text,
            line=lines.of_node(node),
            numbers=numbers,
        )
        known = self._recognise(tensor)
        if known is not None and known.changed:
            text = f"it is {known.name}, which was changed in place since the model was given it"
            birth.because += f"; {text}"
        elif known is not None:
            birth.what, birth.name = known.what, known.name
        elif source.name == "target":
            birth.what, birth.name = LABEL, "the labels"
        if birth.what in (INPUT, LABEL, CONSTANT) and (rows := samples_with_nan(tensor)) is not None:
            birth.because += rows.words()
            numbers["samples"], numbers["of"] = rows.bad, rows.of
        if birth.what == CONSTANT and not (known and known.changed):
            birth.because += self._what_came_before(tensor, values)
        return birth

    def _what_came_before(self, tensor: torch.Tensor, values: Values) -> str:
        """Of a tensor that was computed without a gradient: what may have made it so, among what is known."""
        told = ""
        if tensor.dtype in (torch.float16, torch.bfloat16) and values.inf and not values.nan:
            told += f"; its type is {evidence.name_of(tensor.dtype)}, which holds "
            told += f"{evidence.number(evidence.limit_of(tensor.dtype))} at most"
        bad = self._bad_outside()
        if len(bad) == 1:
            came = self._values_of(bad[0].tensor)
            if came is not None:
                whose = "the parameter " if bad[0].what == PARAMETER else "the buffer " if bad[0].what == BUFFER else ""
                verb = "are" if bad[0].what == LABEL else "is"
                told += f"; of what came into the model {whose}{bad[0].name} {verb} not finite: {counted_of(came)}"
        return told

    def _bad_outside(self) -> list[Outside]:
        """What came in and is not finite. A mask of -infinity is meant so."""
        found = []
        for outside in self.outside:
            if outside.changed or self._state_of(outside.tensor) not in (NAN, INF):
                continue
            values = self._values_of(outside.tensor)
            if outside.what == LABEL or values is not None and (values.nan or values.posinf):
                found.append(outside)
        return found

    def _recognise(self, tensor: torch.Tensor) -> Outside | None:
        """By its memory: what autograd kept is often a view."""
        try:
            where = tensor.untyped_storage().data_ptr()
            return (
                next((o for o in self.outside if o.tensor.untyped_storage().data_ptr() == where), None)
                if where
                else None
            )
        except Exception as error:
            pass_on(error)
            return None

    def _computed(self, source: _Source) -> Birth:
        state = source.state
        candidates = [node for node in source.region if self._can(node, source.region)]
        if brought := self._brought_to(source.region, candidates):
            return brought
        if len(candidates) > 1:
            seen = {
                node: because
                for node in candidates
                if (because := self._proof(node, self.state(Edge(node, 0)), source.region)) is not None
                and self._arrives(node, source)
            }
            proven = [node for node, because in seen.items() if because.forced]
            if not proven and not any(self._may_give_nan(node) for node in candidates if node not in seen):
                proven = [*seen]
            if proven and len({(operations.short(node), self.places.of(node)) for node in proven}) == 1:
                candidates = proven
            elif source.node in proven:
                # The nearest to what is known not to be finite: what it was given says so.
                candidates = [source.node]
            elif proven:
                return self._did_together(sorted(proven, key=order_of), seen)
        if len({(operations.short(node), self.places.of(node)) for node in candidates}) == 1:
            # One, or several that are the same to a reader: the nearest to what is known.
            node = max(candidates, key=order_of)
            return self._did(node, state, source.region, alone=len(candidates) == 1)
        return self._unseen_in(source, candidates)

    def _brought_to(self, region: list[Any], candidates: list[Any]) -> Birth | None:
        """Where what a softmax was given is not known, and one thing that came into the model is not finite: that, by
        what took something that is not kept."""
        took = self._that_took_unkept(region)
        if (not took or len(self._bad_outside()) != 1
                or not any(base_name(n) in operations.LEAVES_OUT for n in candidates)
                or any((because := self._proof(n, None, region)) and because.forced for n in candidates)):
            return None
        return self._brought_in(self._birth_in(max(took, key=order_of)))

    def _may_give_nan(self, node: Any) -> bool:
        """By what it does, and not only by a number that it was given and that is not kept."""
        if operations.adds_unkept(node):
            return not self._is_too_small(node)
        return is_python(node) or base_name(node) not in operations.TAKES_CONSTANTS | operations.KEEPS

    def _arrives(self, node: Any, source: _Source) -> bool:
        """Does what is not finite in its result come to where it is known not to be, past nothing that may leave it
        out?"""
        region, todo, seen = set(source.region), [node], {node}
        infinite = self._proof(node, NAN, source.region) is None
        while todo:
            current = todo.pop()
            if current is source.node:
                return True
            for user in self.graph.consumers.get(current, ()):
                base = base_name(user)
                if (
                    user in region
                    and user not in seen
                    and (base not in operations.DROPS or self._takes_all_of(user, current))
                    and not (infinite and base in operations.BOUNDS)
                ):
                    seen.add(user)
                    todo.append(user)
        return False

    def _did_together(self, nodes: list[Any], proven: dict[Any, Because]) -> Birth:
        """Each of them gives what is not finite, which comes to where it is known: the first is named, all are told."""
        first, *others = nodes
        birth = self._birth_in(first)
        birth.because, birth.numbers = proven[first].text, proven[first].numbers
        told = {operations.short(first)}
        for node in others:
            if operations.short(node) not in told:
                told.add(operations.short(node))
                birth.because += f"; and in {operations.words(node)}: {proven[node].text}"
        return birth

    def _birth_in(self, node: Any) -> Birth:
        return Birth(OPERATION, self.places.of(node), operations.short(node), node.name(), operations.words(node),
                     line=lines.of_node(node))

    def _did(self, node: Any, state: str, region: list[Any], alone: bool = True) -> Birth:
        """`state`: of what is known not to be finite, behind `node`. `alone`: no other can have done it."""
        birth = self._birth_in(node)
        if base_name(node) == "CompiledFunction":
            return self._hidden(
                birth,
                "what happens inside a compiled region is not kept: run again with TORCH_COMPILE_DISABLE=1 and tdbg "
                "names the operation",
            )
        if base_name(node) == "CheckpointFunction":
            return self._hidden(
                birth,
                "a checkpointed segment keeps nothing of what it computes: run again without checkpointing and tdbg "
                "names "
                "the operation",
            )
        own = self.state(Edge(node, 0)) or (state if base_name(node) in proofs.PROVES_ALONE else None)
        because = self._proof(node, own, region)
        if because is None and not is_python(node) and self._takes_unkept(node):
            return self._brought_in(birth)
        if because is None and operations.adds_unkept(node):
            return self._brought_in(birth) if self._is_too_small(node) else self._added_or_overflowed(birth, node)
        if because is None:
            because = (
                proofs.overflow(node, self.given_to(node), self.budget)
                # A NaN is not too large, and of a loss with rules of its own (ctc) an infinity need not be.
                if alone and (state == INF and base_name(node) == "Pow" or self._overflowed(node, state))
                else None
            )
            because = because and self._with_what_is_large(because)
        if because is None and alone and self._overflowed(node, state):
            because = proofs.too_large(node)
        if because is None:
            because = self._given_infinities(node)
        if because is None:
            because = Because("all that it was given is finite, and its result is not" if alone else
                              "all that was given to it and to others like it beside it is finite, and their result "
                              "is not", {})
        birth.because, birth.numbers = because.text, because.numbers
        return birth

    def _with_what_is_large(self, because: Because) -> Because:
        """Of what came into the model: what is so large that it, and no operation, is to be looked at."""
        grown = self._largest_parameter()
        if grown is not None and grown[1] > GROWN:
            of, reaches = f"{grown[0]} reaches {evidence.number(grown[1])}", {"largest_parameter": grown[1]}
            if self._updated:
                return Because(f"{because.text}; parameters have grown: {of} (look at the learning rate)",
                               {**because.numbers, **reaches})
            return Because(f"{because.text}; before the first update {of}: by its initialisation, or in what was "
                           "loaded", {**because.numbers, **reaches, "at_first": 1})
        for outside in self.outside:
            values = self._values_of(outside.tensor) if outside.what == INPUT and not outside.changed else None
            if values is not None and not values.nan and not values.inf and values.largest > TOO_LARGE:
                return Because(f"{because.text}; {outside.name} reaches {evidence.number(values.largest)}",
                               {**because.numbers, "largest_input": values.largest})
        return because

    def _is_too_small(self, node: Any) -> bool:
        """Is the result of what it is known to be given below what its type holds?"""
        most, dtype = self.bound(Edge(node, 0)), evidence.dtype_of(node)
        return most is not None and dtype is not None and most < evidence.limit_of(dtype)

    @staticmethod
    def _added_or_overflowed(birth: Birth, node: Any) -> Birth:
        dtype = evidence.dtype_of(node)
        held = f"larger than {evidence.name_of(dtype)} holds" if dtype is not None else "too large"
        birth.what, birth.because = UNSEEN, (
            f"it began in {birth.said}" + (f", {birth.place.words()}" if birth.place.words() else "")
            + f": its result is {held}, or what it adds without a gradient (a frozen bias, a mask), which is not kept, "
            "is not finite")
        return birth

    def _overflowed(self, node: Any, state: str) -> bool:
        """Of finite numbers it gives infinity for no other reason than size, and what behind it is NaN came of that."""
        base = base_name(node)
        if base == "ToCopy":
            return True
        return base in operations.ADDS_AND_MULTIPLIES and (
            state == INF or not any(self.state(self._through_views(e)) in (NAN, INF) for e in self.graph.inputs(node)))

    def _given_infinities(self, node: Any) -> Because | None:
        """What masks put there, as a rule: it is no cause while a softmax leaves it out."""
        for edge in self.graph.inputs(node):
            known = self._through_views(edge)
            tensor = self._known.get(known)
            if tensor is None or self.state(known) != INF or (values := self._values_of(tensor)) is None:
                continue
            sign = "" if values.posinf and values.neginf else "-" if values.neginf else "+"
            put = sorted({operations.words(n) for n in self.graph.below([known.node])
                          if base_name(n) in operations.PUTS and self._may_be_infinite(n)})
            verb = "is" if values.inf == 1 else "are"
            return Because(f"{values.inf:,} of the {values.count:,} values that it was given {verb} {sign}infinity"
                           + (f", which {put[0]} put there" if len(put) == 1 else ""),
                           {"infinite": values.inf, "values": values.count})
        return None

    def _may_be_infinite(self, node: Any) -> bool:
        return self.state(Edge(node, 0)) in (INF, None)

    def _let_through(self) -> Birth | None:
        """The loss is infinite because of infinities that were put on purpose: where are they computed with?"""
        for node in sorted(self.graph.nodes, key=order_of):
            base = base_name(node)
            if (leaf_of(node) is None and base not in VIEWS | operations.MASKS | operations.DROPS | operations.CHOOSES
                    and self._may_be_infinite(node) and (because := self._given_infinities(node)) is not None):
                birth = self._birth_in(node)
                birth.because, birth.numbers = because.text, because.numbers
                return birth
        return None

    @staticmethod
    def _hidden(birth: Birth, why: str) -> Birth:
        birth.what, birth.because = (
            UNSEEN,
            f"it began in {birth.said}" + (f", {birth.place.words()}" if birth.place.words() else "") + f"; {why}",
        )
        return birth

    def _brought_in(self, birth: Birth) -> Birth:
        """By what needs no gradient and is not kept. Is something known that came in and is not finite?"""
        bad = self._bad_outside()
        if len(bad) == 1:
            values = self._values_of(bad[0].tensor)
            birth.what, birth.name = bad[0].what, bad[0].name
            if values is not None:
                birth.because = counted_of(values)
                birth.numbers = {"nan": values.nan, "inf": values.inf, "values": values.count}
                if (rows := samples_with_nan(bad[0].tensor)) is not None:
                    birth.because += rows.words()
            return birth
        birth.what = CONSTANT
        birth.because = (
            "what it was given with a gradient is finite; what it was given without one (a label, a mask, a "
            "number) is not kept"
        )
        return birth

    def _unseen_in(self, source: _Source, candidates: list[Any]) -> Birth:
        place = self._place_of_region(source.region)
        names = list(dict.fromkeys(operations.short(node) for node in candidates))
        why = {self._unseen[node] for node in source.region if node in self._unseen}
        birth = Birth(UNSEEN, place, candidates=names[:8])
        if any(self._takes_unkept(node) for node in candidates) and [o.what for o in self._bad_outside()] == [LABEL]:
            return self._brought_in(birth)
        where = f" {place.words()}" if place.words() else ""
        if CHECKPOINTED in why:
            birth.because = (f"it began{where} in a checkpointed segment, which keeps nothing of what it computes: "
                             "run again without checkpointing "
                             "and tdbg names the operation")
        elif why:
            birth.because = f"it began{where}, where the values were not to be read ({', '.join(sorted(why))})"
        elif names:
            birth.because = f"it began{where} in one of these, between which no values are kept: {', '.join(names[:8])}"
        else:
            birth.because = f"it began{where}, in operations that give finite results as far as tdbg knows"
        return birth

    def _place_of_region(self, region: list[Any]) -> Place:
        places = [self.places.of(node) for node in sorted(region, key=order_of)]
        if len({*places}) == 1:
            return places[0]
        first, last = places[0], places[-1]
        return Place(after=first.after or first.inside, before=last.before or last.inside)

    # Who can have done it -------------------------------------------------------------------------------------------

    def _largest_parameter(self) -> tuple[str, float] | None:
        found = [(self.parameter_name(leaf) or "a parameter", values.largest) for node in self.graph.nodes
                 if (leaf := leaf_of(node)) is not None and (values := self._values_of(leaf)) is not None]
        return max(found, key=lambda one: one[1], default=None)

    def _takes_unkept(self, node: Any) -> bool:
        return base_name(node) in operations.TAKES_CONSTANTS and any(
            behind is None and not self._takes_none_of(node, n) for n, (behind, _) in enumerate(node.next_functions)
        )

    def _takes_none_of(self, node: Any, number: int) -> bool:
        """Is its input of this number, of a `where`, nowhere chosen?"""
        condition = self._given.get(node, {}).get("condition") if base_name(node) == "Where" else None
        return condition is not None and not bool((condition if number == 0 else ~condition).any())

    def _takes_all_of(self, node: Any, behind: Any) -> bool:
        functions = [function for function, _ in node.next_functions]
        return (base_name(node) == "Where" and functions.count(behind) == 1
                and self._takes_none_of(node, 1 - functions.index(behind)))

    def _proof(self, node: Any, state: str | None, region: list[Any]) -> Because | None:
        given = self.given_to(node)
        for n, other in enumerate(region):
            kept = self._given.get(other, {})
            if base_name(other) == "MaskedFill" and "mask" in kept:
                given[f"mask of {n}"] = kept["mask"]
            elif base_name(other) == "Where" and "condition" in kept:
                first, second = (behind is None for behind, _ in other.next_functions)
                if first != second:
                    given[f"mask of {n}"] = kept["condition"] if first else ~kept["condition"]
        because = self._proof_of(node, state, given)
        if because is not None and not because.forced and base_name(node) in operations.LEAVES_OUT:
            return self._by_a_mask(node, because, region)
        return because

    def _that_took_unkept(self, region: list[Any]) -> list[Any]:
        return [n for n in region if self._takes_unkept(n) or operations.adds_unkept(n)]

    def _by_a_mask(self, node: Any, because: Because, region: list[Any]) -> Because | None:
        """It may have been one: of what was added to the scores nothing is kept. Has anything been?"""
        took = self._that_took_unkept(region)
        if not took and not any(base_name(n) in operations.PUTS for n in region):
            return None
        if not took:
            return because
        return because._replace(text=f"{because.text}; what {operations.words(max(took, key=order_of))} was given "
                                     "without a gradient is not kept")

    def _proof_of(self, node: Any, state: str | None, given: dict[str, torch.Tensor]) -> Because | None:
        if state is None:
            return proofs.proof(node, given, NAN) or proofs.proof(node, given, INF)
        return proofs.proof(node, given, state)

    def _can(self, node: Any, region: list[Any] | None = None) -> bool:
        """May it give what is not finite, of inputs that are? `region`: the nodes around it whose values are not
        known."""
        base = base_name(node)
        if is_python(node):
            return True
        if self._proof(node, None, region or [node]) is not None:
            return True
        if base in operations.KEEPS:
            return self._takes_unkept(node) and not self._is_finite(node)
        if self._takes_unkept(node):
            return not self._is_finite(node)
        sizes = getattr(node, "_saved_self_sym_sizes", None)
        if base == "Sum" and sizes is not None and math.prod(sizes) == 1:
            return False                # of one number it is that number
        if operations.adds_unkept(node) and not self._is_finite(node):
            return True
        most = self.bound(Edge(node, 0)) if operations.results_of(node) == 1 else None
        dtype = evidence.dtype_of(node)
        if base == "ToCopy" and dtype is not None:
            given = [evidence.dtype_of(edge.node, edge.number) for edge in self.graph.inputs(node)]
            if all(g is not None and evidence.limit_of(g) <= evidence.limit_of(dtype) for g in given):
                return False
        return most is None or dtype is None or not most < evidence.limit_of(dtype)
