from tdbg.hook import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from tdbg.hook.singleton import del_hook, set_hook
from tdbg.hook.torch import Hook, get_hook
from tdbg.hook.torch import TorchCollection as Collection
from tdbg.modes import ModeKeys as modes

from ..trials import create_trial
