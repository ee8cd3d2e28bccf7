from tdbg.hook.collection import CollectionKeys, CollectionManager

from . import Collection
