"""Run by the Python that has the real smdebug 1.0.34: what its trial sees of a directory, as JSON and NPZ.

    python read_with_smdebug.py DIRECTORY OUT.npz
"""

import json
import sys

import numpy as np
from smdebug.exceptions import TensorUnavailableForStep
from smdebug.core.modes import ModeKeys
from smdebug.trials import create_trial

trial = create_trial(sys.argv[1])
arrays, reductions = {}, {}
answer = {
    "modes": sorted(mode.name for mode in trial.modes()),
    "steps": {mode.name: trial.steps(mode=mode) for mode in ModeKeys},
    "workers": trial.workers(),
    "names": sorted(trial.tensor_names()),
    "collections": {name: {"names": sorted(c.tensor_names), "regex": c.include_regex,
                           "interval": c.save_config.get_save_config(ModeKeys.TRAIN).save_interval if c.save_config else None}
                    for name, c in trial.collections().items()},
    "members": {name: sorted(trial.tensor_names(collection=name)) for name in ("weights", "losses")},
    "tensor_steps": {},
    "reductions": reductions,
    "loaded_all_steps": trial.loaded_all_steps,
}
for name in answer["names"]:
    tensor = trial.tensor(name)
    answer["tensor_steps"][name] = {mode.name: tensor.steps(mode=mode) for mode in ModeKeys}
    for step in tensor.steps():
        for worker in tensor.workers(step):
            try:
                arrays[f"{name}@{step}@{worker}"] = tensor.value(step, worker=worker)
            except TensorUnavailableForStep:
                pass
            kept = tensor.reduction_values(step, worker=worker) if hasattr(tensor, "reduction_values") else {}
            for (op, absolute), value in kept.items():
                reductions[f"{name}@{step}@{worker}@{'abs_' if absolute else ''}{op}"] = float(np.asarray(value).reshape(()))
np.savez(sys.argv[2], **arrays)
print("answer " + json.dumps(answer))
