from tdbg.hook.singleton import del_hook, set_hook
from tdbg.hook.torch import get_hook
