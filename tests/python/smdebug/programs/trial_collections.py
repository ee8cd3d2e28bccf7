"""A trial by its constructor, with collections of the reader's own; files of a worker that the collections file does not
name; a hook with default values for its JSON file."""

import time

from common import OUT, config_file, tell
import numpy as np
from smdebug.core.access_layer.utils import training_has_ended
from smdebug.core.collection_manager import CollectionManager
from smdebug.core.json_config import create_hook_from_json_config
from smdebug.core.modes import ModeKeys
from smdebug.core.writer import FileWriter
from smdebug.pytorch import Hook
from smdebug.trials import LocalTrial, create_trial

manager = CollectionManager()
manager.add("default")
manager.get("default").include("loss")
manager.add("mine")
manager.get("mine").include("arr")
manager.export(OUT, "worker_0_collections.json")
for step in range(0, 10, 2):
    with FileWriter(trial_dir=OUT, step=step, worker="somehost") as writer:
        writer.write_tensor(tdata=np.full((2, 2), step, np.float32), tname="arr", mode=ModeKeys.TRAIN, mode_step=step)
        writer.write_tensor(tdata=np.array([1.0]), tname="loss", mode=ModeKeys.TRAIN, mode_step=step)

trial = create_trial(OUT)
found = {"steps": trial.steps(), "workers": len(trial.workers()), "num_workers": trial.num_workers,
         "last": trial.last_complete_step, "value": float(trial.tensor("arr").value(2).sum()),
         "of worker": trial.tensor("arr").workers(2)}
began = time.monotonic()
trial.wait_for_steps([0, 4, 8])
found["waited"] = time.monotonic() - began > 20

training_has_ended(OUT)
trial = LocalTrial(name="by name", dirname=OUT)
found["name"] = trial.name
trial = LocalTrial("by place", OUT, range_steps=(2, 7))
found["range"] = trial.steps()
trial = create_trial(OUT)
trial.collection("default").include("arr")
found["default"] = sorted(trial.tensor_names(collection="default"))
trial.collection("new").include("lo.s")
found["new"] = sorted(trial.tensor_names(collection="new"))
trial.collection("named").add_tensor_name("arr")
found["named"] = sorted(trial.tensor_names(collection="named"))
found["collections"] = sorted(trial.collections())

path = config_file({"LocalPath": OUT + "-hook", "HookParameters": {"train.start_step": 3}})
hook = create_hook_from_json_config(Hook, path, default_values={"save_interval": 7})
found["save"] = {mode.name: [hook.save_config.get_save_config(mode).save_interval,
                             hook.save_config.get_save_config(mode).start_step] for mode in ModeKeys}
tell(found)
