from tdbg.hook.locations import (
    STEP_NUMBER_FORMATTING_LENGTH,
    EventFileLocation,
    IndexFileLocationUtils,
    TensorboardFileLocation,
    TensorFileLocation,
)
