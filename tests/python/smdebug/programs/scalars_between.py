"""Scalars at every step, of which few are saved; and steps of two modes."""

from common import OUT, Net, batch, tell
import numpy as np
import torch
from smdebug.pytorch import Hook, SaveConfig, create_trial, modes

torch.manual_seed(6)
hook = Hook(OUT, save_config=SaveConfig(save_interval=5), include_collections=["weights"])
net = Net()
hook.register_module(net)
hook.save_scalar("before", 7)
for n in range(12):
    hook.set_mode(modes.EVAL if n % 4 == 3 else modes.TRAIN)
    net(batch()[0])
    hook.save_scalar("rate", n)
hook.save_scalar("after", 9)
hook.close()

trial = create_trial(OUT)
found = {"steps": trial.steps(), "of modes": {mode.name: trial.steps(mode=mode) for mode in (modes.TRAIN, modes.EVAL)},
         "names": trial.tensor_names(), "rates": {}, "weights": {}}
for name in ("scalar/rate", "scalar/before", "scalar/after"):
    tensor = trial.tensor(name)
    found[name] = {str(s): float(np.asarray(tensor.value(s)).reshape(())) for s in tensor.steps()}
weight = trial.tensor("Net_fc1.weight")
for step in trial.steps():      # a user's loop: every step of the trial has its weights, where it is a step that was due
    try:
        found["weights"][str(step)] = list(weight.value(step).shape)
    except Exception as error:
        found["weights"][str(step)] = type(error).__name__
tell(found)
