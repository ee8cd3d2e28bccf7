"""A rule written for smdebug: the mean of a gradient is above a threshold. It runs unchanged.

    tdbg run --rule-file examples/rules/custom_gradient_rule.py:CustomGradientRule threshold=20.0 \\
             --collect gradients:100 -- python train.py
"""

from smdebug.rules.rule import Rule


class CustomGradientRule(Rule):
    def __init__(self, base_trial, threshold=10.0):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for tname in self.base_trial.tensor_names(collection="gradients"):
            t = self.base_trial.tensor(tname)
            abs_mean = t.reduction_value(step, "mean", abs=True)
            if abs_mean > self.threshold:
                return True
        return False
