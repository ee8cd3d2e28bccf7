from tdbg.hook.base import BaseHook

CallbackHook = BaseHook
