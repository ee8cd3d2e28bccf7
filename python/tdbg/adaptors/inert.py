"""What is left on somebody's model."""

import contextlib

_SILENT = contextlib.nullcontext.__exit__     # takes any arguments and returns None: a hook that does nothing


class Inert:
    """A hook that pickles, and is deep-copied, as something that does nothing and needs no tdbg to load."""

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")

    def __deepcopy__(self, memo):
        return contextlib.nullcontext().__exit__


def is_ours(hook):
    """One of our hooks, or what has become of it in a copy."""
    return isinstance(hook, Inert) or getattr(hook, "__func__", None) is _SILENT
