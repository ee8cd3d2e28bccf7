"""Rules of your own in Python; `tdbg run --rule-file mine.py:MyRule` judges a run with one.

    import numpy as np
    import tdbg

    class LargeGradient(tdbg.Rule):
        \"\"\"The mean of a gradient is far from zero.\"\"\"

        needs = tdbg.needs("gradients")
        threshold: float = tdbg.parameter(20.0, minimum=0, help="largest absolute mean")

        def judge(self, step):
            s = step.statistics("gradients")            # NumPy columns, one row per tensor and worker
            for i in np.flatnonzero(np.abs(s.mean) > self.threshold):
                yield s.finding(i, "mean", ">", self.threshold)

docs/custom-rules.md says the rest. Rules written for smdebug run unchanged.
"""

from .rule import Finding, Rule, needs, parameter

__all__ = ["Finding", "Rule", "needs", "parameter"]
