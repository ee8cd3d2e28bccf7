"""ignite: a trainer and an evaluator, each an engine; gradients of two batches are added up."""

import said
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.metrics import Accuracy, Loss

MICRO, EPOCHS, BATCHES = 2, 2, 6

torch.set_num_threads(1)
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
compute_loss = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = torch.utils.data.TensorDataset(torch.randn(4 * BATCHES, 6), torch.randint(0, 3, (4 * BATCHES,)))
trainer = create_supervised_trainer(model, optimizer, compute_loss, gradient_accumulation_steps=MICRO)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "loss": Loss(compute_loss)})
micro = []


@trainer.on(Events.ITERATION_COMPLETED)
def say(engine):
    micro.append(torch.tensor(engine.state.output))
    if len(micro) == MICRO:
        said.loss(torch.stack(micro).mean())
        micro.clear()


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    said.evaluated(evaluator.run(torch.utils.data.DataLoader(data, batch_size=24)).metrics["loss"])


trainer.run(torch.utils.data.DataLoader(data, batch_size=4), max_epochs=EPOCHS)
said.steps(EPOCHS * BATCHES // MICRO)
