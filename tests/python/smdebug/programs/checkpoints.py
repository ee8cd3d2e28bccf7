"""A job that keeps checkpoints, and the same job started again."""

import json
import os

from common import OUT, Net, batch, tell
from smdebug.core.config_constants import METADATA_FILENAME
from smdebug.core.state_store import StateStore
from smdebug.pytorch import Hook, SaveConfig, create_trial, del_hook, modes

folder = os.path.join(os.path.dirname(OUT), "checkpoints")
os.makedirs(folder)
config = os.path.join(os.path.dirname(OUT), "checkpoint.json")
with open(config, "w") as file:
    json.dump({"LocalPath": folder}, file)
os.environ["CHECKPOINT_CONFIG_FILE_PATH"] = config


def run(out, steps, checkpoints):
    hook = Hook(out, save_config=SaveConfig(save_interval=1), include_collections=["biases"])
    start = {"step": hook.step, "init_step": hook.init_step, "training_run": hook.training_run,
             "last_saved_step": hook.last_saved_step, "modes": {m.name: s for m, s in hook.mode_steps.items()}}
    net = Net()
    hook.register_module(net)
    for n, mode in enumerate(steps):
        hook.set_mode(mode)
        net(batch()[0])
        if n in checkpoints:
            # All of one size: the real one takes others for new ones twice.
            with open(os.path.join(folder, f"{len(os.listdir(folder))}.pt"), "w") as file:
                file.write("checkpoint")
    hook.close()
    del_hook()
    trial = create_trial(out)
    return {"start": start, "steps": {m.name: trial.steps(m) for m in modes}}


T, E, P = modes.TRAIN, modes.EVAL, modes.PREDICT
found = {"first": run(OUT, [T, T, E, T, T, T, E, T], [2, 5])}
with open(os.path.join(folder, METADATA_FILENAME)) as file:
    found["states"] = json.load(file)
found["last"] = StateStore().get_last_saved_state()
found["updated"] = StateStore().is_checkpoint_updated()
found["second"] = run(OUT + "2", [T, E, T, P, T], [0])
with open(os.path.join(folder, METADATA_FILENAME)) as file:
    found["more states"] = json.load(file)
tell(found)
