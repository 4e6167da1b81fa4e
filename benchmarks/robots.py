"""Imitates a robot from videos: LeRobot's loader, and windows of chunks that are decoded once.

    pip install lerobot; python benchmarks/robots.py

A LeRobot data set is written here: two cameras, H.264, 50 episodes of an arm that goes for a
target; a sample has two frames of each and eight actions. Prints and writes samples a second of
LeRobot's DataLoader and of pyecho with e = 1, 2, 4, 8 and all windows of a chunk, each with two
workers and random crops; then, of a small network that clones the behaviour (LeRobot's, e = 8 and
all), its error on ten other episodes after as many samples, and after as much time, as with
LeRobot's loader; and which share of a batch's windows have a neighbour in it, less than eight
frames away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from common import OUTPUT, finish, new_parser, new_report, sample, shown
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from torch import nn
from torchvision.transforms import v2

from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved
from pyecho.integrations import lerobot
from pyecho.torch import EchoLoader

FPS, SIDE, PART, LENGTH = 10, 96, 84, 64
ALL, BATCH, CHUNKS = 32, 32, 48  # anchors of a chunk, rows, chunks in the pool
CAMERAS = ("observation.top", "observation.side")
DELTAS = {camera: [-0.1, 0] for camera in CAMERAS} | {"action": [each / FPS for each in range(8)]}
FACTORS = (1, 2, 4, 8, ALL)
LEROBOT = "LeRobot's DataLoader"
TITLES = {
    "by samples": "Error on other episodes after as many samples",
    "by time": "Error on other episodes after as much time",
    "neighbours": "Share of a batch's windows that have a neighbour in it",
}


class Data(NamedTuple):
    """A data set, and its episodes."""

    root: Path
    trained: range
    episodes: int

    @property
    def tested(self) -> range:
        """Return the episodes that nothing is trained on."""
        return range(self.trained.stop, self.episodes)


def frames_of(
    rng: np.random.Generator, arm: np.ndarray, target: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield what both cameras see: the arm is red, the target green."""
    y, x = np.mgrid[:SIDE, :SIDE] / SIDE
    for way in (1, -1):  # from the other side
        light = [np.hypot(x - at[0], y - at[1]) < 0.07 for at in (arm[::way], target[::way])]
        image = rng.normal(100, 8, (SIDE, SIDE, 3))
        image[light[0]], image[light[1]] = (230, 40, 40), (40, 230, 40)
        yield image.clip(0, 255).astype(np.uint8)


def write(root: Path, episodes: int) -> None:
    """Write the data set, unless it is there."""
    if (root / "meta" / "stats.json").exists():
        return
    image = {"dtype": "video", "shape": (SIDE, SIDE, 3), "names": ["height", "width", "channels"]}
    features = dict.fromkeys(CAMERAS, image) | {
        "observation.state": {"dtype": "float32", "shape": (2,), "names": None},
        "action": {"dtype": "float32", "shape": (2,), "names": None},
    }
    dataset = LeRobotDataset.create("pyecho/arm", FPS, features, root, vcodec="h264")
    for episode in range(episodes):
        rng = np.random.default_rng(episode)
        arm, target = rng.uniform(0.1, 0.9, (2, 2))
        for _ in range(LENGTH):
            action = (target - arm).clip(-0.05, 0.05) + rng.normal(0, 0.01, 2)
            pixels = dict(zip(CAMERAS, frames_of(rng, arm, target), strict=True))
            numbers = {"observation.state": arm, "action": action}
            numbers = {key: each.astype(np.float32) for key, each in numbers.items()}
            dataset.add_frame(pixels | numbers | {"task": "reach"})
            arm = (arm + action).clip(0, 1)
            if np.abs(target - arm).max() < 0.02:
                target = rng.uniform(0.1, 0.9, 2)
        dataset.save_episode(parallel_encoding=False)
    dataset.finalize()


def opened(root: Path, episodes: range, **options: Any) -> LeRobotDataset:
    """Return these episodes."""
    return LeRobotDataset("pyecho/arm", root, [*episodes], delta_timestamps=DELTAS, **options)


def batches(data: Data, way: Any, seed: int) -> Iterator[dict[str, Any]]:
    """Yield batches without end, each row with crops of its own."""
    torch.manual_seed(seed)
    if way == LEROBOT:
        dataset = opened(data.root, data.trained, image_transforms=v2.RandomCrop(PART))
        loader: Any = torch.utils.data.DataLoader(
            dataset, BATCH, shuffle=True, num_workers=2, persistent_workers=True
        )
    else:
        dataset = opened(data.root, data.trained)
        source = lerobot.chunks(dataset, frames=ALL)
        operations = lerobot.windows(dataset)
        for camera in CAMERAS:
            operations[camera][:0] = [ops.RandomCrop((PART, PART), axes=(-2, -1))]
        options = {"shuffle": True, "num_workers": 2, "epochs": 10**6, "seed": seed}
        options |= {"fields": source.fields, "ops": operations, "shuffle_buffer": CHUNKS}
        loader = EchoLoader(source, way, batch_size=BATCH, **options)
    return chain.from_iterable(repeat(loader))


def rate(data: Data, way: Any, seconds: float) -> float:
    """Return samples a second, after the first batches."""
    taken = batches(data, way, 0)
    next(islice(taken, 2, None))
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        count += len(next(taken)["index"])
    return count / passed


class Policy(nn.Module):
    """Eight actions from two frames of each camera, by where features are (a spatial softmax)."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Sequential(nn.Conv2d(12, 24, 8, 4), nn.ReLU(), nn.Conv2d(24, 24, 3))
        self.acts = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        """Return actions."""
        features = self.seen(frames)
        places = torch.linspace(-1, 1, features.shape[-1])
        weights = (4 * features).flatten(2).softmax(-1).view_as(features)
        x, y = ((weights.sum(axis) * places).sum(-1) for axis in (-2, -1))
        return self.acts(torch.cat([x, y], 1))

    def error(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return the squared error of actions, those of 0.035 being 1."""
        seen = torch.cat([batch[camera].flatten(1, 2) for camera in CAMERAS], 1)
        wanted = batch["action"] / 0.035
        apart = (self(seen - 0.4).view_as(wanted) - wanted).square().mean(-1)
        return apart[~batch["action_is_pad"]].mean()


def neighbours(index: torch.Tensor) -> float:
    """Return the share of rows with another one less than eight frames away."""
    apart = (index[:, None] - index).abs() + 8 * torch.eye(len(index), dtype=torch.long)
    return float((apart.min(1).values < 8).double().mean())


def train(data: Data, way: Any, seed: int, steps: int, seconds: float) -> dict[str, float]:
    """Train for so many steps, and for so many seconds; return the errors after both."""
    torch.manual_seed(seed)
    policy, found, shares = Policy(), {}, []
    optimizer = torch.optim.AdamW(policy.parameters(), 2e-3)
    taken = batches(data, way, seed)
    batch = next(taken)
    began, step = time.perf_counter(), 0
    while step < steps or time.perf_counter() - began < seconds:
        optimizer.zero_grad()
        policy.error(batch).backward()
        optimizer.step()
        shares.append(neighbours(batch["index"]))
        batch, step = next(taken), step + 1
        if step == steps:  # the test takes none of the time
            found["seconds"] = time.perf_counter() - began
            found["by samples"] = tested(data, policy)
            began = time.perf_counter() - found["seconds"]
    return found | {"by time": tested(data, policy), "neighbours": float(np.mean(shares))}


@torch.no_grad()
def tested(data: Data, policy: Policy) -> float:
    """Return the error on the other episodes, of crops from their middle."""
    dataset = opened(data.root, data.tested, image_transforms=v2.CenterCrop(PART))
    few = torch.utils.data.Subset(dataset, range(0, len(dataset), 4))
    # In a worker: decoders that LeRobot keeps in this process would fail in workers of later ones.
    loader = torch.utils.data.DataLoader(few, BATCH, num_workers=1)
    return float(np.mean([float(policy.error(batch)) for batch in loader]))


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=5, seeds=5).parse_args()
    torch.set_num_threads(1)
    episodes, seconds, steps = (5, 0.2, 2) if options.quick else (50, 3, 60)
    data = Data(OUTPUT / "robots" / str(episodes), range(episodes * 4 // 5), episodes)
    write(data.root, episodes)
    report = new_report("robots", "Windows of a robot's videos", options, steps=steps)
    report.ratio_name = "Times as many"
    ways = {LEROBOT: LEROBOT} | {f"pyecho, e = {factor}": factor for factor in FACTORS}
    calls = {name: partial(rate, data, way, seconds) for name, way in ways.items()}
    rates = interleaved("samples a second", options.rounds, calls)
    base = rates[LEROBOT]
    rows = [Row(name, each, "samples/s", base, LEROBOT) for name, each in rates.items()]
    report.add("Samples a second, two workers, after the first batches", rows)
    few = {name: way for name, way in ways.items() if way in (LEROBOT, 8, ALL)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in few}
    for seed in shown(range(options.seeds), "trainings"):
        for name, way in few.items():
            lasted = found[LEROBOT][seed]["seconds"] if way != LEROBOT else 0
            found[name].append(train(data, way, seed, steps, lasted))
    for what, title in TITLES.items():
        values = {name: sample(each[what] for each in runs) for name, runs in found.items()}
        base = values[LEROBOT]
        report.add(title, [Row(name, each, "", base, LEROBOT) for name, each in values.items()])
    finish(report, options)
