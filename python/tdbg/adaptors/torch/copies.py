"""Copies, pickles and scripts of a model that wears our hooks are those of a model without.

An inert hook (`Inert`) in a copy still is one: TorchScript refuses it, a file that holds it cannot be loaded with
`weights_only`, and both stay so for good, without tdbg. So our hooks are left out:

* of what a module is pickled and deep-copied by: under `__reduce_ex__`, because classes have a `__getstate__` of their
  own that never asks torch.nn.Module's (RNNs, DistributedDataParallel);
* of what TorchScript sees, in the two functions that look at hooks: all ways to it lead there, and a frame of ours
  above `torch.jit.script` would be taken for the scope that names are looked up in.

What goes past both (GraphModule's copies, dicts that hold hooks of the script's as well) has the inert hook.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..inert import is_ours
from ..patches import Patches

_HOOKS = (("_forward_hooks", ("_forward_hooks_with_kwargs", "_forward_hooks_always_called")),
          ("_forward_pre_hooks", ("_forward_pre_hooks_with_kwargs",)))
_COPY, _DEEPCOPY = (getattr(function, "__code__", None) for function in (copy.copy, copy.deepcopy))
_patches = Patches()
_holders: weakref.WeakSet[Any] = weakref.WeakSet()
_lock = threading.Lock()
_unseen: dict[Any, Any] = {}


def hold(owner: Any) -> None:
    """`owner` has hooks on models, until it lets go of them."""
    if not _holders:
        _patches.undo()                # of holders that died without a word
        _patches.shadow(torch.nn.Module, "__reduce_ex__", _without_hooks)
        scripts = getattr(torch.jit, "_recursive", None)
        for name in ("infer_concrete_type_builder", "get_hook_stubs"):
            _patches.replace([scripts], name, _unhooked)
    _holders.add(owner)


def let_go(owner: Any) -> None:
    _holders.discard(owner)
    if not _holders:
        _patches.undo()


def _only_ours(hooks: Any) -> bool:
    """Where the script has hooks beside ours, their handles may be in the copy, too, and know them by this very
    dict."""
    return type(hooks) in (dict, collections.OrderedDict) and hooks and all(map(is_ours, hooks.values()))


def _plain(state: dict[str, Any]) -> dict[str, Any]:
    """What `state` is without our hooks. The dicts in it are the module's, and stay as they are."""
    plain = state
    for name, beside in _HOOKS:
        hooks: Any = state.get(name)
        if _only_ours(hooks):
            plain = state.copy() if plain is state else plain
            plain[name] = type(hooks)()
            for other in beside:
                known = state.get(other)
                if known:
                    plain[other] = type(known)((key, value) for key, value in known.items() if key not in hooks)
    return plain


def _without_hooks(original: Callable[..., Any]) -> Callable[..., Any]:
    def __reduce_ex__(module: torch.nn.Module, protocol: Any) -> Any:
        made = original(module, protocol)
        # A shallow copy shares the dicts of hooks: one that the script adds to either is called for both.
        if type(made) is not tuple or len(made) < 3 or sys._getframe(1).f_code is _COPY:
            return made
        state = made[2]
        if type(state) is dict:
            plain = _plain(state)
            for holder in list(_holders) if plain is not state else ():
                if hasattr(holder, "was_copied"):
                    holder.was_copied(module, deeply=sys._getframe(1).f_code is _DEEPCOPY)
            state = plain
        elif type(state) is tuple and state and type(state[0]) is dict:      # of a class with __slots__
            state = (_plain(state[0]), *state[1:])
        return (*made[:2], state, *made[3:])
    return __reduce_ex__


@contextlib.contextmanager
def _hidden(module: torch.nn.Module) -> Iterator[None]:
    """The module without our hooks. Several threads may look at it: the last one puts them back."""
    with _lock:
        entry = _unseen.get(id(module))
        if entry is None:
            entry = _unseen[id(module)] = [0, []]
            for name, _ in _HOOKS:
                hooks = module.__dict__.get(name)
                if hooks and any(map(is_ours, hooks.values())):
                    entry[1].append((name, hooks))
                    module.__dict__[name] = type(hooks)((k, hook) for k, hook in hooks.items() if not is_ours(hook))
        entry[0] += 1
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if not entry[0]:
                del _unseen[id(module)]
                module.__dict__.update(entry[1])


def _unhooked(original: Callable[..., Any]) -> Callable[..., Any]:
    def looks_at(nn_module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _hidden(nn_module):
            return original(nn_module, *args, **kwargs)
    return looks_at
