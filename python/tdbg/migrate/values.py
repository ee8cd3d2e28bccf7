"""What an expression of a program that is not run stands for, as far as its text says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_MOST = 100000  # values within a value

@dataclass(frozen=True)
class Unknown:
    """Something that only running the program would tell."""

    text: str  # the expression


@dataclass(frozen=True)
class Name:
    """A module, or a name out of one: `sagemaker.debugger.Rule`."""

    dotted: str

    @property
    def last(self) -> str:
        return self.dotted.rsplit(".", 1)[-1]


@dataclass
class Call:
    """What a call of a known name returns."""

    name: Name
    arguments: list[Any] = field(default_factory=list)
    keywords: dict[str, Any] = field(default_factory=dict)
    complete: bool = True  # False: also arguments that are not known
    line: int = 0
    cell: int = 0

    def argument(self, keyword: str, position: int | None = None, default: Any = None) -> Any:
        if keyword in self.keywords:
            return self.keywords[keyword]
        if position is not None and position < len(self.arguments):
            return self.arguments[position]
        return default


@dataclass(frozen=True)
class Member:
    """An attribute of what a call returned: `estimator.fit`."""

    of: Any  # a Call; not compared by value
    name: str


def is_known(value: Any) -> bool:
    """Whether it is a plain value through and through; not of one that is larger than anybody writes (a list that holds
    another one twice, which does so, too)."""
    todo, seen = [value], 0
    while todo:
        one = todo.pop()
        seen += 1
        if seen > _MOST:
            return False
        if isinstance(one, dict):
            todo += [*one.keys(), *one.values()]
        elif isinstance(one, (list, tuple, set)):
            todo += one
        elif not (one is None or isinstance(one, (bool, int, float, str))):
            return False
    return True
