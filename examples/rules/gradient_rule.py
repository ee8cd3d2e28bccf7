"""The same rule written for tdbg: typed parameters, declared needs, and a finding that says which and how much.

    tdbg run --rule-file examples/rules/gradient_rule.py:LargeGradient threshold=20.0 -- python train.py

Statistics suffice for it, so nothing but them is captured, and it looks at every step.
"""

import numpy as np

import tdbg


class LargeGradient(tdbg.Rule):
    """The mean of a gradient's absolute values is above a threshold."""

    needs = tdbg.needs("gradients")
    threshold: float = tdbg.parameter(10.0, minimum=0, help="largest mean of absolute values")

    def judge(self, step):
        s = step.statistics("gradients")
        if not len(s):
            return NotImplemented
        return [s.finding(i, "mean_abs", ">", self.threshold) for i in np.flatnonzero(s.mean_abs > self.threshold)]
