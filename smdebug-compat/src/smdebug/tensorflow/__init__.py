from tdbg.hook import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook.absent import SessionHook, tensorflow_hook
from tdbg.hook.singleton import del_hook, set_hook
from tdbg.modes import ModeKeys as modes
from tdbg.trial import create_trial

try:
    from tdbg.hook.keras import KerasHook
except ImportError:     # configurations and trials need no framework
    from tdbg.hook.absent import KerasHook

EstimatorHook = SessionHook
get_hook = tensorflow_hook(KerasHook)
