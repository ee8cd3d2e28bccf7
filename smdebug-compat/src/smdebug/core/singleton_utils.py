from tdbg.hook.singleton import current as get_hook
from tdbg.hook.singleton import del_hook, set_hook
