from tdbg.hook.collection import CollectionManager
