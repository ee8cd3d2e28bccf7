"""A collection as a run has it: a name for some of its tensors, and what was to be saved of them."""

from __future__ import annotations

from typing import NamedTuple

from .modes import ModeKeys


class SaveConfigMode(NamedTuple):
    """When, on a mode's own steps: in save_steps, or start_step <= s < end_step and a multiple of save_interval."""

    save_interval: int = 500
    start_step: int = 0
    end_step: int | None = None
    save_steps: tuple = ()

    def should_save_step(self, step_num: int) -> bool:
        if step_num in self.save_steps:
            return True
        below = self.end_step is None or step_num < self.end_step
        return below and step_num >= self.start_step and step_num % self.save_interval == 0


class ReductionConfig(NamedTuple):
    """Which reductions were saved by name, as smdebug sorts them."""

    reductions: list
    norms: list
    abs_reductions: list
    abs_norms: list
    save_raw_tensor: bool
    save_shape: bool


class Collection:
    """Read-only; hash and equality by name.

    :ivar tensor_names: set of canonical names
    :ivar save_config: ModeKeys -> SaveConfigMode; modes whose values are not saved are left out
    """

    def __init__(self, name, include_regex=(), tensor_names=(), reduction_config=None, save_config=None,
                 save_histogram=True):
        self.name = name
        self.include_regex = list(include_regex)
        self.tensor_names = set(tensor_names)
        self.reduction_config = reduction_config
        self.save_config = save_config or {}
        self.save_histogram = save_histogram

    @classmethod
    def _of(cls, info):
        def some(absolute, norms):
            names = [name.removeprefix("abs_") for name in info.reductions if name.startswith("abs_") == absolute]
            return [name for name in names if (name in ("l1", "l2")) == norms]

        reductions = ReductionConfig(some(False, False), some(False, True), some(True, False), some(True, True),
                                     info.save_raw, info.save_shape)
        schedules = {}
        for mode in ModeKeys:
            if (save := info.save(mode.value)) is not None:
                end = None if save.end_step < 0 else save.end_step
                schedules[mode] = SaveConfigMode(save.save_interval, save.start_step, end, tuple(save.save_steps))
        return cls(info.name, info.include_regex, info.tensor_names, reductions, schedules, info.save_histogram)

    def has_tensor_name(self, name) -> bool:
        return name in self.tensor_names

    def __eq__(self, other):
        return isinstance(other, Collection) and self.name == other.name

    def __hash__(self):
        return hash(self.name)

    def __repr__(self):
        return f"<tdbg.Collection {self.name}: {len(self.tensor_names)} tensors>"
