"""Which exceptions a trial and its tensors raise: tdbg's own, or subclasses of them that somebody's programs catch."""

from __future__ import annotations

from typing import NamedTuple

from .. import errors


class Raises(NamedTuple):
    """Types by what they say. Whoever gives others (tdbg.compat) gives subclasses with the same constructors."""

    bad_type: type[errors.TdbgError] = errors.ArgumentTypeError
    bad_value: type[errors.TdbgError] = errors.InvalidArgumentError
    step_not_yet: type[errors.StepNotYetAvailable] = errors.StepNotYetAvailable
    step_unavailable: type[errors.StepUnavailable] = errors.StepUnavailable
    no_more_data: type[errors.NoMoreData] = errors.NoMoreData
    no_tensor: type[errors.TensorUnavailable] = errors.TensorUnavailable
    not_at_step: type[errors.TensorUnavailableForStep] = errors.TensorUnavailableForStep
    no_shape: type[errors.ShapeUnavailableForStep] = errors.ShapeUnavailableForStep
    no_worker: type[errors.InvalidWorker] = errors.InvalidWorker


OWN = Raises()
