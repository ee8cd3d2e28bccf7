"""torch_geometric: a graph network classifies nodes; a step for each epoch, an evaluation behind each."""

import said
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import BatchNorm, GCNConv
from torch_geometric.utils import erdos_renyi_graph

STEPS = 8

torch.set_num_threads(1)
torch.manual_seed(2)


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = GCNConv(6, 16), BatchNorm(16), GCNConv(16, 3)

    def forward(self, x, edges):
        x = F.relu(self.norm(self.first(x, edges)))
        return self.second(F.dropout(x, training=self.training), edges)


graph = Data(x=torch.randn(40, 6), edge_index=erdos_renyi_graph(40, 0.2), y=torch.randint(0, 3, (40,)))
known = torch.rand(40) < 0.7
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for _ in range(STEPS):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(graph.x, graph.edge_index)[known], graph.y[known])
    said.loss(loss)
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        said.evaluated(F.cross_entropy(model(graph.x, graph.edge_index)[~known], graph.y[~known]))
said.steps(STEPS)
