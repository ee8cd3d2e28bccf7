"""optuna: a study of three trials, each a training of a model of its own; one is pruned."""

import optuna
import said
import torch

EPOCHS = 4

torch.set_num_threads(1)
optuna.logging.set_verbosity(optuna.logging.WARNING)
random = torch.Generator().manual_seed(2)
x, y = torch.randn(32, 6, generator=random), torch.randint(0, 3, (32,), generator=random)
steps = 0


def objective(trial):
    global steps
    torch.manual_seed(trial.number)
    width = trial.suggest_int("width", 4, 16)
    model = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))
    optimizer = getattr(torch.optim, trial.suggest_categorical("optimizer", ["Adam", "SGD"]))(
        model.parameters(), lr=trial.suggest_float("lr", 1e-3, 1e-1, log=True))
    for epoch in range(EPOCHS):
        model.train()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        said.loss(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        model.eval()
        with torch.no_grad():
            value = torch.nn.functional.cross_entropy(model(x), y).item()
        said.evaluated(value)
        trial.report(value, epoch)
        if trial.number == 1 and epoch == 1:
            raise optuna.TrialPruned
    return value


optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).optimize(objective, n_trials=3)
said.steps(steps)
