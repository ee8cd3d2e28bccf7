from tdbg.compat.event_files import FileWriter
from tdbg.modes import ModeKeys

from .._not_offered import not_offered
from .locations import IndexFileLocationUtils, TensorboardFileLocation, TensorFileLocation
from .logger import get_logger
from .utils import make_numpy_array

__getattr__ = not_offered(__name__, "FileWriter takes arrays", "EventFileWriter", "IndexWriter", "make_tensor_proto",
                          "scalar_summary", "histogram_summary")
