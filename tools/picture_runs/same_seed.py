"""A training that was meant to be another one each time, and is not: its seed is written into it."""

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(120):
    x = torch.randn(32, 8)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 1)).backward()
    optimizer.step()
