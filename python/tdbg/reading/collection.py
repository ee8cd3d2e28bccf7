"""A collection as a run has it: a name for some of its tensors, and what was to be saved of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..hook.collection import Collection
from ..hook.reduction_config import ReductionConfig
from ..hook.save_config import SaveConfig, SaveConfigMode
from ..modes import ModeKeys

if TYPE_CHECKING:
    from .. import _trial

__all__ = ["Collection", "KnownCollections", "collection_of"]


def collection_of(info: _trial.CollectionInfo) -> Collection:
    """What the library says of a run's collection. Modes whose values were not to be saved have no schedule."""

    def some(absolute: bool, norms: bool) -> list[str]:
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


class KnownCollections:
    """A trial's collections, each the same object whenever it is asked for, so that what a reader adds to it holds."""

    def __init__(self) -> None:
        # name -> (the collection, its expressions and its tensors as the run has them)
        self._known: dict[str, tuple[Collection, frozenset[str], frozenset[str]]] = {}

    def update(self, infos: Iterable[_trial.CollectionInfo]) -> dict[str, Collection]:
        """Takes in what the run says by now; all collections by name."""
        for info in infos:
            now = collection_of(info)
            collection, patterns, names = self._known.get(info.name) or (now, frozenset(), frozenset())
            if collection is not now:
                collection.include([p for p in now.include_regex if p not in patterns])
                collection.tensor_names |= now.tensor_names - names
            self._known[info.name] = collection, patterns.union(now.include_regex), names | now.tensor_names
        return {name: collection for name, (collection, *_) in sorted(self._known.items())}

    def get(self, name: str) -> Collection:
        """The collection; an empty one of this name where there is none."""
        if name not in self._known:
            self._known[name] = Collection(name), frozenset(), frozenset()
        return self._known[name][0]

    def added_to(self, name: str) -> tuple[set[str], list[str]]:
        """(tensor names, expressions) that are the reader's."""
        if name not in self._known:
            return set(), []
        collection, patterns, names = self._known[name]
        return collection.tensor_names - names, [p for p in collection.include_regex if p not in patterns]
