"""A training whose data loader hangs for a while."""

import time

import torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(40):
    if step == 20:
        time.sleep(4)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.ones(4, 8)), torch.zeros(4, 1)).backward()
    optimizer.step()
    time.sleep(0.1)
