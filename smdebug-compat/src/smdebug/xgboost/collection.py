from tdbg.hook.collection import DEFAULT_XGBOOST_COLLECTIONS, CollectionKeys, CollectionManager
