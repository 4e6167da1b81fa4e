"""Batches of graphs, echoed whole."""

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from pyecho.torch import EchoLoader

edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
graphs = [
    Data(x=torch.rand(3, 4), edge_index=edges, y=torch.tensor([number % 2])) for number in range(32)
]
# Graphs differ in size, so whole batches are echoed, by reference.
loader = EchoLoader(DataLoader(graphs, batch_size=8, shuffle=True), 2, batch_size=None)
convolution, head = GCNConv(4, 16), torch.nn.Linear(16, 2)
optimizer = torch.optim.Adam([*convolution.parameters(), *head.parameters()])
steps = 0
for batch in loader:
    optimizer.zero_grad()
    nodes = convolution(batch.x, batch.edge_index).relu()
    scores = head(global_mean_pool(nodes, batch.batch))
    torch.nn.functional.cross_entropy(scores, batch.y).backward()
    optimizer.step()
    steps += 1
assert steps == len(loader) == 8
