"""The calls of smdebug's guide to analysis, on a training with two modes, outputs and custom collections."""

from common import OUT, Net, tell
import numpy as np
import torch
from smdebug.analysis.utils import no_refresh, refresh
from smdebug.core.tensor import StepState
from smdebug.exceptions import (
    InvalidWorker,
    NoMoreData,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
)
from smdebug.pytorch import Hook, ReductionConfig, SaveConfig, SaveConfigMode, modes
from smdebug.trials import create_trial

torch.manual_seed(7)
hook = Hook(OUT, save_config=SaveConfig({modes.TRAIN: SaveConfigMode(2), modes.EVAL: SaveConfigMode(1)}),
            include_regex=["relu", "bias"], include_collections=["gradients", "weights", "losses"])
hook.get_collection("weights").reduction_config = ReductionConfig(reductions=["mean", "max"], norms=["l2"])
net = Net()
criterion = torch.nn.MSELoss()
hook.register_module(net)
hook.register_loss(criterion)
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for n in range(12):
    train = n % 4 != 3
    hook.set_mode(modes.TRAIN if train else modes.EVAL)
    net.train(train)
    optimizer.zero_grad()
    loss = criterion(net(torch.full((4, 6), float(n))), torch.ones(4, 3))
    if train:
        loss.backward()
        optimizer.step()
hook.close()


def outcome(function, *args, **kwargs):
    try:
        value = function(*args, **kwargs)
    except Exception as error:
        kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        return [kind, sorted(k for k in vars(error) if k in ("tname", "step", "last_step", "worker", "mode"))]
    return np.asarray(value).tolist() if isinstance(value, (np.ndarray, np.generic)) else value


trial = create_trial(path=OUT, name="resnet_training_run")
bias, gradient, weight = (trial.tensor(n) for n in ("Net_fc1.bias", "gradient/Net_fc1.bias", "Net_fc1.weight"))
found = {
    "trial": [trial.name, trial.workers(), trial.num_workers],
    "modes": sorted(m.name for m in trial.modes()),
    "steps": {m.name: trial.steps(m) for m in (modes.TRAIN, modes.EVAL, modes.GLOBAL, modes.PREDICT)},
    "names": {"all": trial.tensor_names(), "regex": trial.tensor_names(regex=["^gradient", "MSE"]),
              "collection": trial.tensor_names(collection="gradients"),
              "object": trial.tensor_names(collection=trial.collection("losses")),
              "step": trial.tensor_names(step=0), "mode": trial.tensor_names(mode=modes.EVAL),
              "both": trial.tensor_names(step=1, mode=modes.EVAL), "none": trial.tensor_names(step=1)},
    "two": outcome(trial.tensor_names, regex="a", collection="losses"),
    "collections": sorted(trial.collections()),
    "has": [trial.has_tensor("Net_fc1.bias"), trial.has_tensor("nothing")],
    "mode of": {str(s): [trial.mode(s).name, trial.mode_step(s), trial.mode_modestep(s)[0].name] for s in trial.steps()},
    "private": {str(s): [trial._global_to_mode[s][0].name, trial._global_to_mode[s][1]] for s in trial.steps()},
    "global": [trial.global_step(modes.TRAIN, s) for s in trial.steps(modes.TRAIN)],
    "unknown": [trial.mode(99), trial.mode_step(99)],
    "passed": [trial.has_passed_step(s, m).name for s, m in
               ((0, modes.GLOBAL), (1, modes.GLOBAL), (3, modes.GLOBAL), (99, modes.GLOBAL), (2, modes.TRAIN),
                (1, modes.TRAIN), (99, modes.EVAL))],
    "states": [s.name for s in StepState],
    "wait": [outcome(trial.wait_for_steps, [0, 3]), outcome(trial.wait_for_steps, [1]), outcome(trial.wait_for_steps, [99]),
             outcome(trial.wait_for_steps, [2], mode=modes.TRAIN)],
    "tensor": [bias.name, bias.steps(), bias.steps(mode=modes.TRAIN), gradient.steps(), gradient.steps(mode=modes.EVAL),
               bias.prev_steps(5, 3), bias.prev_steps(4, 2, mode=modes.TRAIN), bias.prev_steps(100, None)],
    "values": {m.name: {str(s): v.tolist() for s, v in bias.values(mode=m).items()} for m in (modes.TRAIN, modes.EVAL)},
    "value": [outcome(bias.value, 0), outcome(bias.value, 1, mode=modes.EVAL), outcome(bias.value, 0, worker="worker_0")],
    "missing": [outcome(bias.value, 1), outcome(bias.value, 99), outcome(gradient.value, 3),
                outcome(bias.value, 0, worker="worker_9"), outcome(weight.value, 0), outcome(trial.tensor, "nothing")],
    "reductions": [outcome(weight.reduction_value, 0, "mean"), outcome(weight.reduction_value, 2, "l2", mode=modes.TRAIN),
                   outcome(bias.reduction_value, 0, "max", abs=True),
                   outcome(bias.reduction_value, 0, "nonsense"), sorted(map(str, weight.reduction_values(0)))],
    "workers": bias.workers(0),
    "shape": [list(bias.shape(0)), list(trial.tensor("relu_output_0").shape(0))],
}
with no_refresh(trial):
    found["no refresh"] = trial.steps()
with refresh(trial):
    found["refresh"] = trial.tensor_names(regex="^relu")
ranged = create_trial(OUT, range_steps=(3, 8))
found["range"] = [ranged.steps(), ranged.steps(modes.TRAIN), ranged.tensor("Net_fc1.bias").steps()]
assert {InvalidWorker, NoMoreData, StepUnavailable, TensorUnavailable, TensorUnavailableForStep}
tell(found)
