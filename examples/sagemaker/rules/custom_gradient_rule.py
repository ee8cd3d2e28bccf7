"""A team's own rule, written for smdebug: some gradient is larger, in the mean of its absolute values, than a threshold."""

from smdebug.rules.rule import Rule


class CustomGradientRule(Rule):
    def __init__(self, base_trial, threshold="10.0"):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            tensor = self.base_trial.tensor(name)
            if tensor.reduction_value(step, "mean", abs=True) > self.threshold:
                return True
        return False
