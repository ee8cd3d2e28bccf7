import os
from common import OUT, Net, batch, config_file, describe, tell
import torch

os.environ["SMDEBUG_CONFIG_FILE_PATH"] = config_file({
    "S3OutputPath": "s3://bucket/prefix",
    "LocalPath": OUT,
    "HookParameters": {"save_interval": "4", "include_workers": "all", "train.save_steps": "1,2", "parameter": "value"},
    "CollectionConfigurations": [
        {"CollectionName": "weights"},
        {"CollectionName": "gradients", "CollectionParameters": {"save_interval": "3", "end_step": "6"}},
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "2"}},
        {"CollectionName": "custom", "CollectionParameters": {"include_regex": "body.0_output, ReLU_in, relu_input",
                                                              "start_step": "4", "save_interval": "2"}},
        {"CollectionName": "biases", "CollectionParameters": {"end_step": "0"}},
    ],
})
import smdebug.pytorch as smd
from smdebug.pytorch import create_trial, get_hook, modes

torch.manual_seed(2)
hook = smd.Hook.create_from_json_file()
assert get_hook() is hook
net = Net()
criterion = torch.nn.NLLLoss()
hook.register_hook(net)
hook.register_hook_loss = hook.register_loss(criterion)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
for _ in range(9):
    optimizer.zero_grad()
    x, y = batch()
    loss = criterion(torch.log_softmax(net(x), 1), y)
    hook.record_tensor_value("my_loss", loss)
    loss.backward()
    optimizer.step()
hook.close()
trial = create_trial(path=OUT, name="mine")
found = describe(trial, [modes.GLOBAL, modes.TRAIN], ["weights", "biases", "gradients", "losses", "custom"])
found["name"] = trial.name
tell(found)
