from tdbg.compat.event_files import FileReader

from .._not_offered import not_offered

__getattr__ = not_offered(__name__, "FileReader reads event files", "EventFileReader", "get_tensor_data")
