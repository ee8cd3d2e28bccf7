"""Foretells from plan.json whether anything will be due in a step, before the step is opened.

The run decides (Run.begin_step). This is for work that comes before it: copies of losses and fingerprints of
batches are not made for a step that takes nothing, and the device lane enqueues its reductions while earlier steps
are still on their way. It may say yes where the run says no, never the other way round.
"""

_MODES = {1: "train", 2: "eval", 3: "predict", 4: "global"}


class Forecast:
    def __init__(self, plan):
        kept = [c for c in plan.get("collections", []) if c.get("keep")]
        self.more = False    # a request for more detail holds: everything may be due
        self._every = int(plan.get("summaries_every", 1))
        self.always = self._every == 1     # something is due in every step of every mode
        self._raw = {mode: [c["raw"][name] for c in kept if name in (c.get("raw") or {})]
                     for mode, name in _MODES.items()}

    def raw_due(self, mode, step):
        """Are raw values of any collection due at this step of this mode?"""
        return self.more or any(_due(schedule, step) for schedule in self._raw[mode])

    def due(self, mode, step):
        return (self._every > 0 and step % self._every == 0) or self.raw_due(mode, step)


def _due(schedule, step):
    start, end = schedule.get("start", 0), schedule.get("end", -1)
    return step in schedule.get("steps", ()) or (
        start <= step and (end < 0 or step < end) and step % max(1, schedule.get("interval", 500)) == 0)
