"""Names in include_collections that nobody made collections of; layers added before the model is registered."""

from common import OUT, Net, batch, tell
import torch
from smdebug.pytorch import Hook, SaveConfig, create_trial

torch.manual_seed(7)
found = {}
for number, names in enumerate((["scalars"], ["sm_metrics", "losses"], ["typo", "losses"])):
    hook = Hook(f"{OUT}-{number}", save_config=SaveConfig(save_interval=2), include_collections=names)
    net = Net()
    hook.register_module(net)
    criterion = torch.nn.CrossEntropyLoss()
    hook.register_loss(criterion)
    for n in range(4):
        x, y = batch()
        criterion(net(x), y).backward()
        hook.save_scalar("n", n, sm_metric=number == 1)
    hook.close()
    trial = create_trial(f"{OUT}-{number}")
    found[",".join(names)] = {"names": trial.tensor_names(), "steps": trial.steps()}

net = Net()
hook = Hook(OUT, save_config=SaveConfig(save_interval=1), include_collections=["layer", "whole"])
hook.get_collection("layer").add_module_tensors(net.body[0], inputs=True, outputs=True)
hook.get_collection("layer").add_module_tensors(net.fc2)
hook.get_collection("whole").add_module_tensors(net, inputs=True)
hook.register_module(net)
for _ in range(2):
    net(batch()[0])
hook.close()
trial = create_trial(OUT)
found["layer"] = trial.tensor_names(collection="layer")
found["whole"] = trial.tensor_names(collection="whole")
tell(found)
