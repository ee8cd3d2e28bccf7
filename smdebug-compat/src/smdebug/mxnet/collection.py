from tdbg.hook.collection import DEFAULT_MXNET_COLLECTIONS, CollectionManager
from . import Collection
