"""Names of smdebug's that tdbg does not offer. They can be imported, as many scripts do without ever using them; whoever
uses one is told, in a sentence, that it is not there and what is instead."""

from tdbg.compat.exceptions import SMDebugNotImplementedError

INSIDE = "it is a part of smdebug's inside; docs/migrating-from-smdebug.md says what to use"
PROFILER = "tdbg does not profile; use the framework's own profiler (torch.profiler, tf.profiler)"
S3 = "tdbg reads and writes local files; copy to and from S3 with boto3 or `aws s3 sync`"
SERVICE = "tdbg calls no service of AWS; `tdbg run --on-issue stop` (or exec:, webhook:) acts on what a rule finds"


class NotOffered:
    """Stands for one name; calling it, subclassing it, or asking it for anything raises SMDebugNotImplementedError."""

    def __init__(self, name, why):
        self.__name__, self._why = name, why

    def _refuse(self, *args, **kwargs):
        raise SMDebugNotImplementedError(f"{self.__name__} is not offered: {self._why}")

    __call__ = __mro_entries__ = __iter__ = __getitem__ = __enter__ = _refuse

    def __getattr__(self, name):
        if name.startswith("__"):       # inspection and copying ask for these
            raise AttributeError(name)
        self._refuse()

    def __repr__(self):
        return f"<{self.__name__}: not offered by tdbg>"


def not_offered(module, why, *names):
    """A module's `__getattr__` for `names`; without names for all of them."""
    def get(name):
        if name.startswith("__") or (names and name not in names):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return NotOffered(f"{module}.{name}", why)

    return get
