"""A layer that never learns: its parameters were not given to the optimizer. The loss falls all the same.

Healthy: the optimizer has them all.
"""

import torch
from data import arguments, batches
from torch import nn

given = arguments(__doc__)
model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
learnt = model.parameters() if given.healthy else model[2].parameters()
loss_function = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(learnt, lr=0.05)

for step, (images, labels) in enumerate(batches("train", 64 * 60, 64)):
    optimizer.zero_grad()
    loss = loss_function(model(images), labels)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
