"""What lies in out_dir when the hook was closed: smdebug's own files, which programs look for and read themselves."""

import glob
import os

from common import OUT, Net, batch, tell
import torch
from smdebug.core.reader import FileReader
from smdebug.pytorch import Hook, SaveConfig, modes

torch.manual_seed(9)
hook = Hook(OUT, save_config=SaveConfig(save_interval=2), include_collections=["biases"], export_tensorboard=True)
net = Net()
hook.register_module(net)
hook.save_scalar("at", 3)
hook.set_mode(modes.TRAIN)
for n in range(5):
    net(batch()[0])
hook.close()

files = [os.path.relpath(path, OUT) for place in ("events", "index", "collections")
         for path in glob.glob(os.path.join(OUT, place, "**", "*"), recursive=True) if os.path.isfile(path)]
found = {"files": sorted(files), "end": os.path.exists(os.path.join(OUT, "training_job_end.ts")),
         "tensorboard": os.path.isdir(os.path.join(OUT, "tensorboard")), "tensors": {}, "scalars": []}
for path in sorted(glob.glob(os.path.join(OUT, "events", "*", "*.tfevents"))):
    for name, step, value, mode, mode_step in FileReader(path).read_tensors():
        found["tensors"][f"{name} {step} {mode.name} {mode_step}"] = value.reshape(-1).astype("f8").tolist()
    found["scalars"] += [[e["name"], e["step"], float(e["value"].reshape(-1)[0])]
                         for e in FileReader(path).read_events(regex_list=["scalar"])]
tell(found)
