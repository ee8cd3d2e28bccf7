from common import OUT, Net, batch, tell
import numpy as np
import torch
from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, create_trial
from smdebug.exceptions import TensorUnavailableForStep

torch.manual_seed(3)
hook = Hook(OUT, save_config=SaveConfig(save_interval=2), include_collections=["weights", "gradients", "biases"],
            reduction_config=ReductionConfig(reductions=["min", "max", "mean", "sum"], abs_reductions=["mean", "max"],
                                             norms=["l1", "l2"], abs_norms=["l1"]))
hook.get_collection("biases").reduction_config = ReductionConfig(reductions=["prod"], save_raw_tensor=True)
net = Net()
hook.register_module(net)
criterion = torch.nn.CrossEntropyLoss()
hook.register_loss(criterion)
for _ in range(4):
    x, y = batch()
    net.zero_grad()
    criterion(net(x), y).backward()
hook.close()

trial = create_trial(OUT)
found = {"names": trial.tensor_names(), "steps": trial.steps(), "reductions": {}, "raw": {}}
for name in trial.tensor_names():
    tensor = trial.tensor(name)
    try:
        found["raw"][name] = list(np.asarray(tensor.value(0)).shape)
    except TensorUnavailableForStep:
        found["raw"][name] = "only reductions"
    if not name.endswith("weight"):
        continue
    for step in tensor.steps():
        for op, absolute in (("min", False), ("max", False), ("mean", False), ("sum", False), ("mean", True),
                             ("max", True), ("l1", False), ("l2", False), ("l1", True)):
            found["reductions"][f"{name} {step} {absolute} {op}"] = float(
                np.asarray(tensor.reduction_value(step, op, abs=absolute)).reshape(()))
bias = trial.tensor("Net_fc1.bias")
found["reductions"]["prod"] = float(np.asarray(bias.reduction_value(2, "prod")).reshape(()))
tell(found)
