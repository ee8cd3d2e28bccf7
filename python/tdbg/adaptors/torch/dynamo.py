"""What Dynamo is told of functions of ours that it meets, and what it has compiled. Nothing here imports it: that takes
seconds."""

from __future__ import annotations

import contextlib
import gc
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..guard import pass_on, say


def run_uncompiled(*functions: Any) -> None:
    """What torch calls outside of a graph, while a compiled function runs, is a frame that would be compiled as well,
    with all that it calls. Traced inside of another's graph it is as before."""
    frames: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    try:
        skip = frames._FrameAction.SKIP
        for function in functions:
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    except Exception:       # a torch that calls this something else: as before
        pass


def has_compiled() -> bool:
    utils = sys.modules.get("torch._dynamo.utils")
    return utils is not None and bool(utils.counters["stats"].get("unique_graphs"))


def was_compiled(root: torch.nn.Module) -> bool:
    """Does Dynamo have code of a class in it already? That runs, and knows nothing of hooks which come now. What else
    was compiled in the process is no matter of this model's."""
    try:
        entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        return any(entries(kind.forward.__code__) for kind in {type(module) for _, module in root.modules()})
    except Exception as error:      # a class without a forward in Python, or a torch that calls this something else
        pass_on(error)
        return False


def calls_compiled(root: torch.nn.Module) -> bool:
    """Is there a function that Dynamo has code of, and that knows this model or a part of it by a name of its own or of
    its file? A walk over all objects there are."""
    try:
        entries = torch._C._dynamo.eval_frame._debug_get_cache_entry_list
        parts = set(map(id, root.modules()))
        functions = [f for f in gc.get_objects() if type(f) is types.FunctionType and entries(f.__code__)]
        return any(id(value) in parts for function in functions for value in _named_in(function))
    except Exception as error:
        pass_on(error)
        return False


def _named_in(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):       # nothing is in it yet
            yield cell.cell_contents
    for name in function.__code__.co_names:
        yield function.__globals__.get(name)


class _UnlessOneGraph:
    """True where the function that is being traced may be broken into several graphs: with `fullgraph=True` the
    training would be told that it cannot be compiled."""

    def __init__(self) -> None:
        self._said = False

    def __bool__(self) -> bool:
        try:
            broken = not sys.modules["torch._dynamo.symbolic_convert"].InstructionTranslator.current_tx().one_graph
        except Exception as error:
            pass_on(error)
            return True
        if not broken and not self._said:
            self._said = True
            say("an optimizer steps inside a graph that must stay one (fullgraph=True): its steps are not seen")
        return bool(broken)


_unless_one_graph = _UnlessOneGraph()


def breaks_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that Dynamo stops tracing for, and that is called with nothing of it traced. In one graph it is traced
    after all: it begins with `if is_dynamo_compiling(): return`."""
    marked: Any = function
    marked._torchdynamo_disable = _unless_one_graph
    marked._torchdynamo_disable_msg = "tdbg looks at the tensors of an optimizer step"
    run_uncompiled(function)
    return function
