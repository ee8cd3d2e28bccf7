from tdbg.hook.collection import DEFAULT_MXNET_COLLECTIONS, CollectionKeys, CollectionManager

from . import Collection
