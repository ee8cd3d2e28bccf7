"""ReductionConfig(save_shape=True): shapes instead of values, and beside reductions."""

from common import OUT, Net, batch, tell
import torch
from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, create_trial

torch.manual_seed(8)
hook = Hook(OUT, save_config=SaveConfig(save_interval=2), include_collections=["weights", "biases"],
            reduction_config=ReductionConfig(save_shape=True))
hook.get_collection("biases").reduction_config = ReductionConfig(reductions=["max"], save_shape=True)
net = Net()
hook.register_module(net)
for _ in range(5):
    net(batch()[0])
hook.close()

trial = create_trial(OUT)
found = {"steps": trial.steps(), "names": trial.tensor_names(), "tensors": {}}
for name in trial.tensor_names():
    tensor = trial.tensor(name)
    try:
        value = list(tensor.value(0).shape)
    except Exception as error:
        value = type(error).__name__
    found["tensors"][name] = {"steps": tensor.steps(), "shapes": [list(tensor.shape(s)) for s in tensor.steps()],
                              "value": value, "reductions": sorted(map(str, tensor.reduction_values(0)))}
tell(found)
