from tdbg.hook import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook.singleton import del_hook, set_hook
from tdbg.modes import ModeKeys as modes

from ..trials import create_trial

try:
    from tdbg.hook.mxnet import Hook, get_hook
    from tdbg.hook.mxnet import MxNetCollection as Collection
except ImportError:     # configurations and trials need no framework
    from tdbg.hook import Collection
    from tdbg.hook.absent import MxNetHook as Hook
    from tdbg.hook.absent import hook_getter

    get_hook = hook_getter(Hook)
