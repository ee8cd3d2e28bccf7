"""tdbg.Rule: typed parameters, declared needs, findings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import math
import textwrap
import typing
from collections.abc import Iterable
from typing import Any

if typing.TYPE_CHECKING:
    from .view import Step

_TYPES: dict[Any, str] = {float: "float", int: "int", bool: "bool", str: "string", list[str]: "string"}
_REQUIRED: Any = object()


@dataclasses.dataclass
class Finding:
    """One reason to say that the condition is met: a value against a threshold. All may be left out."""

    tensor: str = ""
    value: float = 0.0
    comparison: str = ""
    threshold: float = 0.0
    measure: str = ""
    worker: str = ""
    text: str = ""  #: one sentence for a person

    def _message(self) -> dict[str, Any]:
        message = dataclasses.asdict(self)
        for key in ("value", "threshold"):
            message[key] = _number(message[key])
        return {key: value if key in ("value", "threshold") else str(value) for key, value in message.items()}


def _number(value: float) -> float | str:
    value = float(value)
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


class Needs(typing.NamedTuple):
    """What `needs(...)` returns."""

    collections: tuple[str, ...] = ()
    tensor_regex: tuple[str, ...] = ()
    raw: bool = False
    every: int = 0
    histograms: bool = False


def needs(*collections: str, tensor_regex: str | Iterable[str] = (), raw: bool = False, every: int | None = None,
          histograms: bool = False) -> Needs:
    """What must be captured for a rule.

    :param collections: whose statistics it reads, at every step
    :param tensor_regex: patterns; statistics of the tensors whose names they are found in
    :param raw: it reads values of these, too
    :param every: the values, every so many steps of the mode (default 500)
    :param histograms: it reads a histogram of these at every step; without it there is one at every tenth or so
    :raises ValueError: `every` without `raw`, or below 1

    >>> needs("gradients", raw=True, every=100)
    Needs(collections=('gradients',), tensor_regex=(), raw=True, every=100, histograms=False)
    """
    if isinstance(tensor_regex, str):
        tensor_regex = (tensor_regex,)
    if every is not None and (int(every) < 1 or not raw):
        raise ValueError("needs: every is the interval of raw values: a number of steps, together with raw=True")
    return Needs(tuple(collections), tuple(tensor_regex), bool(raw), int(every or 0), bool(histograms))


class Parameter(typing.NamedTuple):
    """What `parameter(...)` says of one."""

    default: Any
    help: str
    unit: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]


def parameter(default: Any = _REQUIRED, *, help: str = "", unit: str = "", minimum: float | None = None,
              maximum: float | None = None, choices: Iterable[str] = ()) -> Any:
    """The value of an annotated class attribute that users may set: `threshold: float = tdbg.parameter(1e-6)`.

    :param default: none: it must be given
    :param minimum, maximum: of numbers, inclusive
    :param choices: of texts: nothing else is accepted
    """
    return Parameter(default, help, unit, minimum, maximum, tuple(choices))


def _lines(cls: type) -> tuple[str, dict[str, int]]:
    """Line of each annotated attribute, and the file. What cannot be found is left out."""
    try:
        source, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls)
        of_class: Any = ast.parse(textwrap.dedent("".join(source))).body[0]
        body = of_class.body
    except (OSError, TypeError, SyntaxError, IndexError, AttributeError):
        return "", {}
    return file or "", {node.target.id: first + node.lineno - 1 for node in body
                  if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}


class Rule:
    """A condition that is looked at step by step, in a process of its own.

    Annotated attributes are its parameters (float, int, bool, str); a plain default or `tdbg.parameter(...)` behind
    them. They are parsed and checked before training, and set on the instance before `setup` is called.

    :cvar needs: what must be captured: `tdbg.needs(...)`, or a method that returns it and may look at parameters
    """

    needs: typing.ClassVar[Any] = Needs()

    def setup(self) -> None:
        """Called once, before the first step, with the parameters set."""

    def judge(self, step: Step) -> Any:
        """Looks at one step.

        :param step: tdbg.rules.view.Step: its statistics, values and numbers, and `step.trial` up to it
        :return: False, None or nothing: no; True, a text, a Finding, or several of them (a generator will do): the
            condition is met, and the rule ends. `NotImplemented`: there was nothing to judge here.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method judge(self, step)")

    def at_end(self, step: Step) -> Any:
        """Once, after the last step. Returns what judge() does."""
        return NotImplemented

    @classmethod
    def parameters(cls) -> dict[str, tuple[Any, Parameter, str]]:
        """Name -> (type, Parameter, "file:line"), base classes' first."""
        found: dict[str, tuple[Any, Parameter, str]] = {}
        for base in reversed(cls.__mro__):
            if not (isinstance(base, type) and issubclass(base, Rule)) or base is Rule:
                continue
            file, lines = _lines(base)
            hints = typing.get_type_hints(base)
            for name in inspect.get_annotations(base):
                if name.startswith("_") or typing.get_origin(hints[name]) is typing.ClassVar:
                    continue
                given = base.__dict__.get(name, _REQUIRED)
                where = f"{file}:{lines[name]}" if name in lines else ""
                if not isinstance(given, Parameter):
                    given = parameter(given)
                if hints[name] not in _TYPES:
                    raise TypeError(f"{where}: parameter {name}: the type {hints[name]!r} is not one of float, int, "
                                    "bool, str")
                found[name] = (hints[name], given, where)
        return found

    @classmethod
    def _make(cls, texts: dict[str, str]) -> Rule:
        """An instance with its parameters set from the texts of a configuration, which were checked before."""
        self = cls.__new__(cls)
        for name, (kind, given, _) in cls.parameters().items():
            value = _parse(kind, texts[name]) if name in texts else given.default
            if value is _REQUIRED:
                raise ValueError(f"parameter {name} is missing")
            setattr(self, name, value)
        return self

    def _needs(self) -> Needs:
        found = self.needs() if callable(self.needs) else self.needs
        if isinstance(found, str):
            found = needs(found)
        if not isinstance(found, Needs):
            raise TypeError(f"{type(self).__name__}.needs: found {found!r}; it is made by tdbg.needs(...)")
        return found


def _parse(kind: Any, text: str) -> Any:
    if kind is bool:
        return text.strip().lower() in ("true", "1")
    if kind is list[str]:
        return [part.strip() for part in text.split(",") if part.strip()]
    return kind(text)


def describe(cls: type[Rule]) -> list[dict[str, Any]]:
    """Parameters of a rule class as the launcher wants them."""
    described = []
    for name, (kind, given, where) in cls.parameters().items():
        item: dict[str, Any] = {"name": name, "type": _TYPES[kind], "required": given.default is _REQUIRED,
                                "unit": given.unit, "help": given.help, "choices": list(given.choices),
                                "declared_at": where}
        if given.default not in (_REQUIRED, None):
            item["default"] = ",".join(given.default) if kind is list[str] else str(given.default)
        for key in ("minimum", "maximum"):
            if getattr(given, key) is not None:
                item[key] = float(getattr(given, key))
        described.append(item)
    return described


def findings_of(said: Any) -> tuple[str, list[Finding]]:
    """What judge() returned, as an answer: (judged, findings).

    >>> findings_of("the loss is NaN")[1][0].text, findings_of(NotImplemented)
    ('the loss is NaN', ('not_due', []))
    """
    if said is NotImplemented:
        return "not_due", []
    if said is None or said is False:
        return "judged", []
    if said is True:
        return "judged", [Finding()]
    if isinstance(said, (Finding, str)):
        said = [said]
    if hasattr(said, "dtype"):  # numpy.bool_, the result of a comparison
        return "judged", [Finding()] if bool(said) else []
    found = []
    for item in said:
        if isinstance(item, str):
            item = Finding(text=item)
        if not isinstance(item, Finding):
            raise TypeError(f"judge() returned {item!r}; True, False, texts and tdbg.Finding are what it may return")
        found.append(item)
    return "judged", found
