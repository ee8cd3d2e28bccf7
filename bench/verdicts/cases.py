"""The cases of each half, and the code that each is made of."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import pathlib
import sys
import textwrap
import types
from typing import Any

import fifth  # noqa: F401  adds to the two lists
import fifth_healthy  # noqa: F401  does so, too
import fourth  # noqa: F401  does so, too
import fourth_healthy  # noqa: F401  does so, too
import long  # noqa: F401  does so, too
import modes  # noqa: F401  does so, too
import third  # noqa: F401  does so, too
import turns  # noqa: F401  does so, too
from faults import KINDS, work_of
from healthy import HEALTHY

HERE = pathlib.Path(__file__).resolve().parent
SPLIT: dict[str, list[str]] = json.loads((HERE / "split.json").read_text())
try:
    import boosting  # noqa: F401  does so, too
except ImportError:     # an environment without the two libraries, as that of transformers
    del SPLIT["boosting"], SPLIT["boosting healthy"]
HALVES = [half for half in SPLIT if not half.endswith(" healthy")]
Case = dict[str, Any]


def name_of(case: Case) -> str:
    return f"{case['kind']}-{case['draw']}-{'faulty' if case['faulty'] else 'healthy'}"


def make(case: Case) -> Any:
    """What is trained: it has `run`, and says what it is."""
    if case["kind"] in HEALTHY:
        return HEALTHY[case["kind"]](f"{case['kind']}/{case['draw']}")
    return work_of(case["kind"], case["draw"], case["faulty"])


def cases(half: str, draws: range) -> list[Case]:
    found = [{"half": half, "kind": kind, "draw": draw, "faulty": faulty}
             for kind in SPLIT[half] for draw in draws for faulty in (True, False)]
    return found + [{"half": half, "kind": kind, "draw": draw, "faulty": False} for kind in SPLIT[f"{half} healthy"] for draw in draws]


def ours(thing: Any) -> bool:
    file = getattr(sys.modules.get(getattr(thing, "__module__", None) or ""), "__file__", None)
    return file is not None and pathlib.Path(file).resolve().parent == HERE


def code_of(thing: Any, seen: dict[str, str] | None = None) -> dict[str, str]:
    """The source of a function or class, and of all that it names of this folder, by name."""
    seen = {} if seen is None else seen
    name = f"{thing.__module__}.{thing.__qualname__}"
    if name in seen or not ours(thing):
        return seen
    seen[name] = source = textwrap.dedent(inspect.getsource(thing))
    names = vars(sys.modules[thing.__module__])
    for node in ast.walk(ast.parse(source)):
        used = names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = names.get(node.value.id)
            used = getattr(module, node.attr, None) if isinstance(module, types.ModuleType) else used
        if inspect.isclass(used) or inspect.isfunction(used):
            code_of(used, seen)
        elif isinstance(used, (int, float, str, list, tuple, set)):
            seen[f"{thing.__module__} {getattr(node, 'id', '')}"] = repr(sorted(used) if isinstance(used, set) else used)
        elif isinstance(used, dict) and used is not KINDS and used is not HEALTHY:
            for value in used.values():
                if inspect.isclass(value):
                    code_of(value, seen)
    return seen


def key_of(case: Case) -> str:
    """Of the case and the code that it is made of."""
    kind = KINDS.get(case["kind"])
    code = code_of(HEALTHY[case["kind"]]) if kind is None else code_of(kind.make, code_of(kind.put))
    told = [name_of(case), sorted(code.items()), kind and [sorted(kind.detectors), repr(sorted(kind.draws.items())), kind.late]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:20]
