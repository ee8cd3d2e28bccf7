from common import OUT, Net, batch, tell
import numpy as np
import torch
from smdebug.pytorch import Hook, SaveConfig, create_trial, del_hook, get_hook, modes, set_hook

torch.manual_seed(5)
hook = Hook(OUT, save_config=SaveConfig(save_interval=1), include_regex=["fc1"])
net = Net()
hook.register_module(net)
for n in range(3):
    hook.set_mode(modes.TRAIN)
    net(batch()[0])
    hook.save_scalar("learning_rate", 0.5 ** n)
    hook.save_scalar("seen", n, sm_metric=True)
assert get_hook() is hook
del_hook()
assert get_hook() is None
set_hook(hook)
hook.close()
trial = create_trial(OUT)
tell({"names": trial.tensor_names(), "steps": trial.steps(),
      "rate": [float(np.asarray(trial.tensor("scalar/learning_rate").value(s)).reshape(())) for s in trial.steps()],
      "seen": [float(np.asarray(trial.tensor("scalar/seen").value(s)).reshape(())) for s in trial.steps()],
      "regex": trial.tensor_names(regex="fc1.*put"), "scalars": trial.tensor_names(regex="^scalar/")})
