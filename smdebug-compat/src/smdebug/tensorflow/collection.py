from tdbg.hook.collection import DEFAULT_TF_COLLECTIONS, CollectionKeys, CollectionManager

from . import Collection
