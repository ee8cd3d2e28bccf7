from common import OUT, Net, tell
import numpy as np
import torch
from smdebug.exceptions import NoMoreData, RuleEvaluationConditionMet, TensorUnavailable
from smdebug.pytorch import Hook, SaveConfig, modes
from smdebug.rules.rule import Rule
from smdebug.rules.rule_invoker import invoke_rule
from smdebug.trials import create_trial

torch.manual_seed(4)
hook = Hook(OUT, save_config=SaveConfig(save_interval=2), include_collections=["weights", "gradients"])
net = Net()
hook.register_module(net)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for n in range(10):
    hook.set_mode(modes.TRAIN)
    optimizer.zero_grad()
    loss = criterion(net(torch.ones(4, 6)) * (10.0 if n >= 5 else 1.0), torch.ones(4, 3))
    loss.backward()
    optimizer.step()
hook.close()


class GradientsAbove(Rule):
    def __init__(self, base_trial, threshold=1.0):
        super().__init__(base_trial, action_str="")
        self.threshold = float(threshold)
        self.seen = []

    def set_required_tensors(self, step):
        for name in self.base_trial.tensor_names(collection="gradients"):
            self.req_tensors.add(name, steps=[step])

    def invoke_at_step(self, step):
        self.seen.append(step)
        largest = 0.0
        for tensor in self.req_tensors.get():
            largest = max(largest, float(np.abs(tensor.value(step)).max()))
            largest = max(largest, float(tensor.reduction_value(step, "max", abs=True)))
        return largest > self.threshold


class Missing(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, "")

    def set_required_tensors(self, step):
        self.req_tensors.add("no such tensor", steps=[step])

    def invoke_at_step(self, step):
        return True


trial = create_trial(OUT)
found = {}
rule = GradientsAbove(trial, threshold="1.0")
try:
    invoke_rule(rule, start_step=0, end_step=10, raise_eval_cond=True)
except RuleEvaluationConditionMet as met:
    found["met"] = [met.rule_name, met.step, str(met)]
found["seen"] = rule.seen
calm = GradientsAbove(trial, threshold=1e9)
try:
    invoke_rule(calm)
except NoMoreData as end:
    found["end"] = [end.step, end.last_step]
found["calm"] = calm.seen
invoke_rule(Missing(trial), end_step=3)
try:
    trial.tensor("no such tensor")
except TensorUnavailable as error:
    found["unavailable"] = error.tname
tell(found)
