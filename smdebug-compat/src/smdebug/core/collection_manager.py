from tdbg.compat.exceptions import SMDebugError, SMDebugTypeError, SMDebugValueError
from tdbg.hook.collection import CollectionManager

from .collection import ALLOWED_PARAMS, Collection
from .utils import get_path_to_collections, is_s3, load_json_as_dict
