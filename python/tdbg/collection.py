"""A collection as a run has it: a name for some of its tensors, and what was to be saved of them."""

from __future__ import annotations

from .hook.collection import Collection
from .hook.reduction_config import ReductionConfig
from .hook.save_config import SaveConfig, SaveConfigMode
from .modes import ModeKeys

__all__ = ["Collection", "collection_of"]


def collection_of(info) -> Collection:
    """What the library says of a run's collection. Modes whose values were not to be saved have no schedule."""

    def some(absolute, norms):
        names = [name.removeprefix("abs_") for name in info.reductions if name.startswith("abs_") == absolute]
        return [name for name in names if (name in ("l1", "l2")) == norms]

    reductions = ReductionConfig(some(False, False), some(True, False), some(False, True), some(True, True),
                                 info.save_raw, info.save_shape)
    schedules = {}
    for mode in ModeKeys:
        if (save := info.save(mode.value)) is not None:
            end = None if save.end_step < 0 else save.end_step
            schedules[mode] = SaveConfigMode(save.save_interval, save.start_step, end, list(save.save_steps))
    return Collection(info.name, info.include_regex, info.tensor_names, reductions, SaveConfig(schedules),
                      info.save_histogram)
