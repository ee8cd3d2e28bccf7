from tdbg.hook.collection import DEFAULT_PYTORCH_COLLECTIONS
from tdbg.hook.torch import Hook

DEFAULT_INCLUDE_COLLECTIONS = ["losses"]
