"""What objects of smdebug's have once they were made, beside their classes' members: the public ones, as JSON. Run by the
real smdebug and by ours."""

import json
import os
import sys

import torch
from smdebug.pytorch import Hook, SaveConfig, create_trial
from smdebug.rules import Rule


class Never(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")

    def invoke_at_step(self, step):
        return False


def public(thing):
    return sorted(name for name in {*dir(thing), *vars(thing)} if not name.startswith("_"))


out = os.path.join(sys.argv[1], "run")
hook = Hook(out, save_config=SaveConfig(save_interval=1), include_collections=["weights"], include_regex=["none"])
net = torch.nn.Linear(2, 1)
hook.register_module(net)
for _ in range(2):
    net(torch.ones(1, 2)).sum().backward()
hook.save_scalar("at", 1, timestamp=1500000000.0)
hook.close()
trial = create_trial(out)
rule = Never(trial)
tensor = trial.tensor("Linear_weight")
print("\nRESULT " + json.dumps({
    "names": {"hook": public(hook), "trial": public(trial), "tensor": public(tensor), "rule": public(rule),
              "required": public(rule.req_tensors), "collection": public(trial.collection("weights"))},
    "values": {"token": os.path.relpath(trial.last_index_token, out), "directory": trial.trial_dir == out,
               "regex": hook.include_regex, "loggers": [hook.logger.name, trial.logger.name], "all": hook.save_all_workers,
               "workers": [[step, sorted(names)] for step, names in trial.workers_for_global_step.items()],
               "options": [trial.cache, trial.check, trial.index_mode, trial.parallel], "trial": tensor.trial is trial,
               "collections": sorted(trial.collection_manager.get_collections()) == sorted(trial.collections())}}))
