from tdbg.hook.locations import (
    STEP_NUMBER_FORMATTING_LENGTH,
    EventFileLocation,
    IndexFileLocationUtils,
    TensorboardFileLocation,
    TensorFileLocation,
)

from .._not_offered import INSIDE, PROFILER, NotOffered, not_offered

TraceFileLocation = NotOffered(f"{__name__}.TraceFileLocation", PROFILER)

__getattr__ = not_offered(__name__, INSIDE, "TensorLocation", "TensorShape")
