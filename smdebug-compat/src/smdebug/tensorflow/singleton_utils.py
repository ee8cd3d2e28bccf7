from . import del_hook, get_hook, set_hook
