from tdbg.hook.collection import DEFAULT_PYTORCH_COLLECTIONS, CollectionKeys, CollectionManager
from tdbg.hook.torch import TorchCollection as Collection
