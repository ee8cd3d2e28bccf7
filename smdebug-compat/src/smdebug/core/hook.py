from tdbg.hook.base import BaseHook
from tdbg.hook.collection import CollectionKeys, CollectionManager
from tdbg.hook.reduction_config import ReductionConfig
from tdbg.hook.save_config import SaveConfig, SaveConfigMode
from tdbg.modes import ALLOWED_MODE_NAMES, ALLOWED_MODES, ModeKeys

from .._not_offered import INSIDE, not_offered
from .collection import NON_HISTOGRAM_COLLECTIONS, NON_REDUCTION_COLLECTIONS, SCALAR_COLLECTIONS, SM_METRIC_COLLECTIONS, Collection
from .config_constants import DEFAULT_SAVED_COLLECTIONS, DEFAULT_WORKER_NAME
from .hook_utils import get_tensorboard_dir, verify_and_get_out_dir
from .json_config import create_hook_from_json_config
from .logger import get_logger
from .state_store import StateStore
from .utils import FRAMEWORK, flatten, get_tb_worker, match_inc, size_and_shape

CallbackHook = BaseHook

__getattr__ = not_offered(__name__, INSIDE, "ScalarCache", "SageMakerFileMetricsWriter")
