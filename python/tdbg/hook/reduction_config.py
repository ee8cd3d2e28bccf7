"""What is saved of a tensor instead of its values: smdebug's ReductionConfig."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from ..exceptions import SMDebugTypeError, SMDebugValueError

ALLOWED_REDUCTIONS = ["min", "max", "mean", "std", "variance", "sum", "prod"]
ALLOWED_NORMS = ["l1", "l2"]
ALLOWED_PARAMS = ["reductions", "norms", "abs_reductions", "abs_norms", "save_raw_tensor", "save_shape"]


class ReductionConfig:
    """Reductions (and, with `abs_`, of absolute values), norms; and with them the tensor or its shape.

    Sums are numpy's; `std` and `variance` divide by n; norms are over all elements, whatever the shape.
    """

    def __init__(self, reductions: list[str] | None = None, abs_reductions: list[str] | None = None,
                 norms: list[str] | None = None, abs_norms: list[str] | None = None, save_raw_tensor: bool = False,
                 save_shape: bool = False) -> None:
        self.reductions = list(reductions or [])
        self.abs_reductions = list(abs_reductions or [])
        self.norms = list(norms or [])
        self.abs_norms = list(abs_norms or [])
        self.save_raw_tensor, self.save_shape = save_raw_tensor, save_shape
        for names, allowed in ((self.reductions + self.abs_reductions, ALLOWED_REDUCTIONS),
                               (self.norms + self.abs_norms, ALLOWED_NORMS)):
            for name in names:
                if name not in allowed:
                    raise SMDebugValueError(f"no reduction {name!r}: one of {', '.join(allowed)}")
        for key in ("save_raw_tensor", "save_shape"):
            if not isinstance(getattr(self, key), bool):
                raise SMDebugValueError(f"{key} is {getattr(self, key)!r}: True or False is accepted")

    def names(self) -> list[str]:
        """As in a collections file: mean, l1_norm, abs_max, abs_l2_norm."""
        return (self.reductions + [f"{n}_norm" for n in self.norms] + [f"abs_{r}" for r in self.abs_reductions]
                + [f"abs_{n}_norm" for n in self.abs_norms])

    @classmethod
    def of_names(cls, names: Iterable[str], save_raw_tensor: bool = False,
                 save_shape: bool = False) -> ReductionConfig:
        config = cls(save_raw_tensor=save_raw_tensor, save_shape=save_shape)
        for name in names:
            plain = name[4:] if name.startswith("abs_") else name
            is_norm = plain.endswith("_norm")
            plain = plain[:-5] if is_norm else plain
            if plain not in (ALLOWED_NORMS if is_norm else ALLOWED_REDUCTIONS):
                raise SMDebugValueError(f"no reduction {name!r}: {', '.join(ALLOWED_REDUCTIONS)}, l1_norm, l2_norm, "
                                        "each also with abs_ in front")
            kind = ("abs_" if name.startswith("abs_") else "") + ("norms" if is_norm else "reductions")
            getattr(config, kind).append(plain)
        return config

    def to_json_dict(self) -> dict[str, Any]:
        return {"save_raw_tensor": self.save_raw_tensor, "reductions": ",".join(self.names()),
                "save_shape": self.save_shape}

    def to_json(self) -> str:
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Any) -> ReductionConfig | None:
        """`reductions` as text ("min,abs_l1_norm") or a list, with the two flags."""
        if params is None:
            return None
        if not isinstance(params, dict):
            raise SMDebugTypeError(f"a reduction config is {params!r}: a dict is accepted")
        names = params.get("reductions") or []
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",") if name.strip()]
        return cls.of_names(names, params.get("save_raw_tensor", False), params.get("save_shape", False))

    @classmethod
    def from_json(cls, text: str) -> ReductionConfig | None:
        return cls.from_dict(json.loads(text))

    @classmethod
    def parse(cls, value: Any) -> ReductionConfig | None:
        if value is None or isinstance(value, ReductionConfig):
            return value
        if isinstance(value, dict):
            return cls.from_dict(value)
        raise SMDebugTypeError(f"a reduction config is {value!r}: ReductionConfig or a dict is accepted")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReductionConfig) and self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (f"ReductionConfig({','.join(self.names())}, save_raw_tensor={self.save_raw_tensor}, "
                f"save_shape={self.save_shape})")


def document_of(config: ReductionConfig | None) -> dict[str, Any] | None:
    """As the plan's configuration has it."""
    if config is None:
        return None
    return {"reductions": config.names(), "save_raw_tensor": config.save_raw_tensor, "save_shape": config.save_shape}


REDUCTIONS_PREFIX = "smdebug/reductions/"


def get_reduction_tensor_name(tensorname: str, reduction_name: str, abs: bool,
                              remove_colon_index: bool = True) -> str:
    """Under which name smdebug's files hold one reduction: smdebug/reductions/abs_mean/conv1.weight."""
    if remove_colon_index:
        tensorname = re.sub(r":\d+", "", tensorname)
    return f"{REDUCTIONS_PREFIX}{'abs_' if abs else ''}{reduction_name}/{tensorname}"


def reverse_reduction_tensor_name(reduction_tensor_name: str) -> tuple[str, str, bool]:
    """(tensor's name, reduction, of absolute values?) of such a name."""
    op, _, name = reduction_tensor_name.split(REDUCTIONS_PREFIX, 1)[1].partition("/")
    return name, op.removeprefix("abs_"), op.startswith("abs_")
