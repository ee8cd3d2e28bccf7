from tdbg.hook import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook.absent import EstimatorHook, tensorflow_hook
from tdbg.hook.singleton import del_hook, set_hook
from tdbg.modes import ModeKeys as modes

from ..trials import create_trial

try:
    from tdbg.hook.keras import KerasHook
except ImportError:     # configurations and trials need no framework
    from tdbg.hook.absent import KerasHook


def __getattr__(name):
    """SessionHook and Collection import TensorFlow, which Keras on another backend does without."""
    if name == "SessionHook":
        try:
            from tdbg.hook.session import SessionHook
        except ImportError:
            from tdbg.hook.absent import SessionHook
        return SessionHook
    if name == "Collection":
        try:
            from tdbg.hook.session import TensorFlowCollection as Collection
        except ImportError:
            from tdbg.hook import Collection
        return Collection
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


get_hook = tensorflow_hook(keras=lambda: KerasHook, session=lambda: __getattr__("SessionHook"),
                           estimator=lambda: EstimatorHook)
