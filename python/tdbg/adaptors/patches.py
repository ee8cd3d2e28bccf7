"""Replacing functions of a framework, reversibly, so that nobody else notices.

A replacement has the original's name, module and signature (functools.wraps), scripts as the original
under torch.jit, and is put under every name under which the framework exports it. `Patches.undo` restores an
attribute only where it is still ours: a wrapper that somebody laid on top of it stays.
"""

import functools


class Patches:
    def __init__(self):
        self._undo = []

    def replace(self, owners, name, make):
        """Replaces `name` in each of `owners` by make(original): what has several names is one function before and after,
        and is found by whoever pickles it. Absent names are skipped."""
        made = {}
        for owner in owners:
            original = owner.__dict__.get(name) if isinstance(owner, type) else getattr(owner, name, None)
            if original is None or getattr(original, "_tdbg", False):
                continue
            wrapper = made.get(id(original))
            if wrapper is None:
                wrapper = made[id(original)] = functools.wraps(original)(make(original))
                wrapper._tdbg = True
                # torch.jit.script compiles a Python function from its source and its globals; without this it
                # would compile the wrapper, whose *args it refuses, and break scripts that worked.
                wrapper.__prepare_scriptable__ = lambda original=original: original
            setattr(owner, name, wrapper)
            self._undo.append((owner, name, original, wrapper))

    def shadow(self, owner, name, make):
        """As `replace`, for a method that the class may inherit: make() then gets what comes after it in the order of
        whatever subclass the instance is of."""
        if name in owner.__dict__:
            self.replace([owner], name, make)
            return

        def inherited(instance, *args, **kwargs):
            return getattr(super(owner, instance), name)(*args, **kwargs)

        wrapper = functools.wraps(getattr(owner, name))(make(inherited))
        wrapper._tdbg = True
        setattr(owner, name, wrapper)
        self._undo.append((owner, name, None, wrapper))

    def undo(self):
        for owner, name, original, wrapper in reversed(self._undo):
            if getattr(owner, name, None) is wrapper:
                if original is None:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        self._undo.clear()
