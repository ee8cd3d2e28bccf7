"""A call of a function that trains, its arguments by name: as the library itself tells them apart."""

from __future__ import annotations

import inspect
from typing import Any

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
                inspect.Parameter.KEYWORD_ONLY)


class Call:
    """`given` is {name: argument} of what the call states, and may be changed and added to. What is changed goes on
    where it stood, what is added goes on by its name: the library sees the call that the script wrote, and warns of
    what it would have warned of."""

    def __init__(self, names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._positional, self._keywords = names[: len(args)], list(kwargs)
        self.given: dict[str, Any] = {**kwargs, **dict(zip(names, args))}

    @classmethod
    def of(cls, signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """None where the signature does not tell the arguments apart, or the call lacks one or has one too many.

        XGBoost takes what its signature has behind a `*` by position as well, in that order, and warns; where such a
        call names an argument a second time, the position counts.
        """
        names = []
        for name, parameter in signature.parameters.items():
            if parameter.kind not in _BY_POSITION:
                break
            names.append(name)
        if len(args) > len(names):
            return None
        call = cls(names, args, kwargs)
        try:
            signature.bind(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(**call.given)
            except TypeError:
                return None
        return call

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the library is called with."""
        added = [name for name in self.given if name not in self._positional and name not in self._keywords]
        return (tuple(self.given[name] for name in self._positional),
                {name: self.given[name] for name in [*self._keywords, *added]})
