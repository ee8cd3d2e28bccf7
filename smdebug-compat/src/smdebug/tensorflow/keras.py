from . import KerasHook
