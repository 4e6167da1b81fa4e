"""Frames of a collector, each used three times before new ones take its place."""

import torch
from torchrl.collectors import Collector
from torchrl.envs import PendulumEnv

from pyecho.torch import EchoLoader

collector = Collector(PendulumEnv(), None, frames_per_batch=64, total_frames=256)
# Every frame is used three times before its batch of new ones takes its place.
loader = EchoLoader(collector, 3, batch_size=32, unbatch=True, shuffle_buffer=64)
value = torch.nn.Linear(3, 1)
optimizer = torch.optim.Adam(value.parameters())
frames = 0
for batch in loader:
    inputs = torch.stack([batch["th"].sin(), batch["th"].cos(), batch["thdot"]], -1)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(value(inputs), batch["next", "reward"]).backward()
    optimizer.step()
    frames += batch.batch_size[0]
assert frames == 3 * 256
collector.shutdown()
