"""A training whose first layer gets no gradient, for pages that speak of one."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
first, last = nn.Linear(8, 16), nn.Linear(16, 4)
model = nn.ModuleList([first, last])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    inputs = torch.randn(16, 8)
    outputs = last(torch.relu(first(inputs)).detach())
    nn.functional.cross_entropy(outputs, inputs[:, :4].argmax(1)).backward()
    optimizer.step()
