"""CUDA graphs that a script captures and replays: the lane of NVIDIA's GPUs is told of both (cuda.py)."""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch

from .cuda import CudaLane


def patch(patches: Any, session: Any) -> None:
    """Watches captures and replays of CUDA graphs."""
    guard = session.guard

    def lane() -> CudaLane | None:
        return session.port if isinstance(session.port, CudaLane) else None

    def watch_begin(original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if session.listening and (port := lane()) is not None and not session.elsewhere():
                    device = torch.cuda.current_device()
                    session.modules.uncalled.stop()         # no hook runs in a replay
                    port.capture_begins(graph, device)
            except BaseException as error:
                guard.failed("CUDAGraph.capture_begin", error)
            return original(graph, *args, **kwargs)
        return capture_begin

    def watch_end(original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(graph, *args, **kwargs)
            finally:
                try:
                    if (port := lane()) is not None and not session.elsewhere():
                        session.capture_ended()
                        port.capture_ended()
                except BaseException as error:
                    guard.failed("CUDAGraph.capture_end", error)
        return capture_end

    def watch_replay(original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if session.listening and (port := lane()) is not None:
                    port.replay_begins(graph)
            except BaseException as error:
                guard.failed("CUDAGraph.replay", error)
            result = original(graph, *args, **kwargs)
            try:
                if session.listening and lane() is not None:
                    session.graph_replayed(graph)
            except BaseException as error:
                guard.failed("CUDAGraph.replay", error)
            return result
        return replay

    classes = [torch.cuda.CUDAGraph]
    patches.replace(classes, "capture_begin", watch_begin)
    patches.replace(classes, "capture_end", watch_end)
    patches.replace(classes, "replay", watch_replay)

    def watch_graphed(original: Callable[..., Any]) -> Callable[..., Any]:
        def make_graphed_callables(callables: Any, *args: Any, **kwargs: Any) -> Any:
            # It refuses modules that have hooks, and calls what it is given, which is no step of the training.
            given = callables if isinstance(callables, (tuple, list)) else (callables,)
            session.modules.uncalled.stop()
            with session.out_of_sight([m for m in given if isinstance(m, torch.nn.Module)]):
                return original(callables, *args, **kwargs)
        return make_graphed_callables

    patches.replace([torch.cuda, torch.cuda.graphs], "make_graphed_callables", watch_graphed)


class _Unhooked:
    """Modules without our hooks, while it is entered; they come back where they were, in their order."""

    def __init__(self, modules: list[torch.nn.Module], is_ours: Any) -> None:
        self._modules, self._is_ours = modules, is_ours
        self._taken: list[Any] = []

    _HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

    def __enter__(self) -> None:
        for module in itertools.chain.from_iterable(m.modules() for m in self._modules):
            for name in self._HOOKS:
                hooks = getattr(module, name)
                if any(map(self._is_ours, hooks.values())):
                    self._taken.append((hooks, dict(hooks)))
                    for key in [k for k, hook in hooks.items() if self._is_ours(hook)]:
                        del hooks[key]

    def __exit__(self, *error: object) -> None:
        for hooks, before in reversed(self._taken):
            now = dict(hooks)
            hooks.clear()
            hooks.update({key: hook for key, hook in before.items() if key in now or self._is_ours(hook)})
            hooks.update({key: hook for key, hook in now.items() if key not in before})


def unhooked(modules: list[torch.nn.Module], is_ours: Any) -> _Unhooked:
    return _Unhooked(modules, is_ours)
