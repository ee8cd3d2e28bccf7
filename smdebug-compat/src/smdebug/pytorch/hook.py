from tdbg.compat.exceptions import SMDebugError
from tdbg.hook.collection import DEFAULT_PYTORCH_COLLECTIONS, CollectionKeys, CollectionManager
from tdbg.hook.singleton import set_hook
from tdbg.hook.torch import Hook

from ..core.config_constants import DEFAULT_WORKER_NAME
from ..core.hook import CallbackHook
from ..core.utils import FRAMEWORK, check_smdataparallel_env, error_handling_agent, make_numpy_array
from .utils import get_reduction_of_data, is_pt_1_5, is_pt_1_6, is_pt_1_7, is_pt_1_8

DEFAULT_INCLUDE_COLLECTIONS = ["losses"]
