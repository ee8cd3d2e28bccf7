from common import OUT, Net, batch, describe, tell
import torch
import smdebug.pytorch as smd
from smdebug import SaveConfig, SaveConfigMode, modes
from smdebug.trials import create_trial

torch.manual_seed(1)
hook = smd.Hook(
    out_dir=OUT,
    save_config=SaveConfig({
        modes.TRAIN: SaveConfigMode(save_interval=3, end_step=7, save_steps=[7]),
        modes.EVAL: SaveConfigMode(save_interval=2),
        modes.PREDICT: SaveConfigMode(save_interval=1, end_step=0),
        modes.GLOBAL: SaveConfigMode(save_interval=100),
    }),
    include_collections=["weights", "gradients", "biases", "acts"],
)
hook.get_collection("acts").include(["relu_output_1", "fc2_input"])
hook.get_collection("biases").save_config = SaveConfig(save_interval=4)
net = Net()
criterion = nn_loss = torch.nn.CrossEntropyLoss()
hook.register_module(net)
hook.register_loss(criterion)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for epoch in range(2):
    hook.set_mode(modes.TRAIN)
    net.train()
    for _ in range(5):
        optimizer.zero_grad()
        x, y = batch()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
    hook.set_mode(modes.EVAL)
    net.eval()
    with torch.no_grad():
        for _ in range(3):
            x, y = batch()
            criterion(net(x), y)
hook.set_mode(modes.PREDICT)
with torch.no_grad():
    net(batch()[0])
tell({"hook": [hook.step, {m.name: s for m, s in hook.mode_steps.items()}, sorted(hook.include_collections),
               hook.has_default_hook_configuration()]})
hook.close()

trial = create_trial(OUT)
found = describe(trial, [modes.TRAIN, modes.EVAL, modes.PREDICT, modes.GLOBAL],
                 ["weights", "biases", "gradients", "losses", "acts", "default"])
found["mode of"] = {str(s): [trial.mode(s).name, trial.mode_step(s)] for s in trial.steps()}
found["global of"] = [trial.global_step(modes.EVAL, s) for s in trial.steps(mode=modes.EVAL)]
found["prev"] = trial.tensor("Net_fc1.weight").prev_steps(3, n=2, mode=modes.TRAIN)
found["ended"] = trial.loaded_all_steps
tell(found)
