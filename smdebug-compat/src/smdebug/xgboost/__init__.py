from tdbg.hook import Collection, CollectionKeys, SaveConfig, SaveConfigMode
from tdbg.hook.singleton import del_hook, set_hook
from tdbg.modes import ModeKeys as modes

from ..trials import create_trial

try:
    from tdbg.hook.xgboost import Hook, get_hook
except ImportError:     # configurations and trials need no framework
    from tdbg.hook.absent import XGBoostHook as Hook
    from tdbg.hook.absent import hook_getter

    get_hook = hook_getter(Hook)
