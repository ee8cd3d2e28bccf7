"""Public names of what opens runs; tdbg.reading has them, and tdbg.compat those of smdebug."""

from .compat.trial import create_trial
from .reading.cursor import Cursor
from .reading.refreshing import no_refresh, refresh
from .reading.steps import Step, StepState
from .reading.summary import Histogram, Summary
from .reading.tensor import Tensor
from .reading.trial import Trial, open

__all__ = ["open", "create_trial", "Trial", "Tensor", "Cursor", "Step", "StepState", "Summary", "Histogram", "refresh",
           "no_refresh"]
