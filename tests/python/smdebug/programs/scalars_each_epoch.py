"""A scalar at the end of each epoch, which is seldom a step that is saved: the next one that is has it."""

from common import OUT, Net, batch, tell
import numpy as np
import torch
from smdebug.pytorch import Hook, SaveConfig, create_trial, modes

torch.manual_seed(6)
hook = Hook(OUT, save_config=SaveConfig(save_interval=4))
net = Net()
hook.register_module(net)
hook.set_mode(modes.TRAIN)
for epoch in range(3):
    for _ in range(5):
        net(batch()[0])
    hook.save_scalar("accuracy", epoch)
hook.close()

trial = create_trial(OUT)
accuracy = trial.tensor("scalar/accuracy")
tell({"steps": trial.steps(),
      "accuracy": {str(s): float(np.asarray(accuracy.value(s)).reshape(())) for s in accuracy.steps()}})
