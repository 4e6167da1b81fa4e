"""A masked autoencoder of videos that are decoded again and again: how often to use each decoding?

    pip install av; python benchmarks/video.py

Table 2d of MAE-ST (arXiv 2205.09113) in small. All runs see as many samples, and each decoded video
gives 1, 2 or 4 of them, other windows each time (`ops.RandomCrop` over time and place): spread over
batches by a pool of 64 videos, or, as in the paper, together in one batch. The videos are made
here: one of six shapes, in any orientation, swings over a smooth background; PyAV encodes and
decodes H.264.

Prints and writes, for each way: seconds of the run; how many times as fast it is as one sample a
decoding, seed by seed; the same by Eq. 1 from processor times; the error of hidden pixels of other
videos, over their variance; and how often a linear classifier of the features, trained on the same
videos, tells the shape in others. In the paper 4 samples are 3.0 times as fast as 1, with 84.4%
instead of 83.7% after fine-tuning.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from common import OUTPUT, finish, new_parser, new_report, results_of, sample, shown
from torch import nn

import pyecho
from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample

FRAMES, SIDE, SHAPES, TRAINED, TESTED = 160, 40, 6, 800, 600
STEPS, BATCH, POOL, RATE, WARM_UP = 2000, 16, 64, 1.5e-3, 100
WINDOW, PATCH, WIDTH, KEPT = (8, 32, 32), (2, 8, 8), 96, 16
PIXELS, TOKENS = 128, 64  # of a patch, of a window
WAYS = {"1": (1, POOL), "2": (2, POOL), "4": (4, POOL), "4 together": (4, 0)}
"""Samples of a decoding, and the shuffle buffer."""
FOLDER = OUTPUT / "videos"


def inside(shape: int, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return how far points are inside a shape of radius 1; negative outside."""
    if shape == 0:
        return 1 - np.hypot(u, v)  # a disk
    if shape == 1:
        return 0.3 - np.abs(np.hypot(u, v) - 0.7)  # a ring
    if shape == 2:
        return 0.8 - np.maximum(abs(u), abs(v))  # a square
    if shape == 3:
        return 0.5 - np.maximum(np.maximum(-v, v / 2 + 0.866 * u), v / 2 - 0.866 * u)  # a triangle
    bar = np.minimum(1 - abs(u), 0.32 - abs(v))
    return bar if shape == 4 else np.maximum(bar, np.minimum(1 - abs(v), 0.32 - abs(u)))


def pictures(shape: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the frames of a video in bytes."""
    y, x = np.mgrid[:SIDE, :SIDE]
    waves = rng.uniform(-0.15, 0.15, (6, 2))
    background = sum(np.sin(a * y + b * x + rng.uniform(0, 6)) for a, b in waves) * 15 + 128
    radius, turn, way = rng.uniform(8, 10), *rng.uniform(0, 2 * np.pi, 2)
    contrast, phase = rng.choice([-1, 1]) * rng.uniform(60, 90), rng.uniform(0, 6)
    for frame in range(FRAMES):
        moved = 6 * np.sin(phase + frame / 6)
        to_y, to_x = y - SIDE / 2 - moved * np.sin(way), x - SIDE / 2 - moved * np.cos(way)
        u = (np.cos(turn) * to_x + np.sin(turn) * to_y) / radius
        v = (np.cos(turn) * to_y - np.sin(turn) * to_x) / radius
        image = background + contrast * np.clip(inside(shape, u, v) * radius + 0.5, 0, 1)
        yield np.clip(image + rng.normal(0, 2, image.shape), 0, 255).astype(np.uint8)


def make_video(path: Path, shape: int, seed: int) -> None:
    """Write a video, unless it is there."""
    if path.exists():
        return
    partial = path.with_suffix(".part")
    with av.open(str(partial), "w", format="mp4") as container:
        stream: Any = container.add_stream(
            "libx264", rate=24, options={"crf": "18", "preset": "veryfast"}
        )
        stream.width = stream.height = SIDE
        stream.pix_fmt, stream.thread_count = "yuv420p", 1
        for image in pictures(shape, np.random.default_rng(seed)):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="gray")))
        container.mux(stream.encode())
    partial.rename(path)


class Videos:
    """Decoded videos by index, (frames, height, width) bytes; counts decodings and seconds."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths, self.decoded, self.seconds = paths, 0, 0.0

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        began = time.thread_time()
        with av.open(str(self.paths[index])) as container:
            container.streams.video[0].codec_context.thread_count = 1
            frames = [np.frombuffer(each.planes[0], np.uint8) for each in container.decode(video=0)]
        video = np.stack(frames).reshape(len(frames), SIDE, -1)[..., :SIDE].copy()
        self.decoded += 1
        self.seconds += time.thread_time() - began
        return video

    def windows(self, each: int) -> torch.Tensor:
        """Return the same random windows of every video in each process, scaled."""
        rng = np.random.default_rng(0)
        room = np.array([FRAMES, SIDE, SIDE]) - WINDOW + 1
        found = np.empty((len(self), each, *WINDOW), np.float32)
        for index, rows in enumerate(found):
            video = self[index]
            for row in rows:
                t, y, x = rng.integers(0, room)
                row[:] = video[t:, y:, x:][: WINDOW[0], : WINDOW[1], : WINDOW[2]]
        return torch.from_numpy((found.reshape(-1, *WINDOW) / 255 - 0.5) * 4)


def waves_of_places() -> torch.Tensor:
    """Return sines and cosines of the coordinates of patches: (tokens, width)."""
    sizes = [a // b for a, b in zip(WINDOW, PATCH, strict=True)]
    places = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).reshape(TOKENS, 3)
    angles = (places[..., None] / 20 ** np.linspace(0, 1, WIDTH // 6)).reshape(TOKENS, -1)
    return torch.from_numpy(np.concatenate([np.sin(angles), np.cos(angles)], 1)).float()


class Autoencoder(nn.Module):
    """A small transformer that sees a quarter of the patches and paints the others."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(PIXELS, WIDTH), nn.Linear(WIDTH, PIXELS)
        self.places = nn.Parameter(waves_of_places())
        self.hidden = nn.Parameter(torch.randn(WIDTH) * 0.02)
        self.encoder = nn.Sequential(_layer(), _layer())
        self.decoder = nn.Sequential(nn.LayerNorm(WIDTH), _layer(), nn.LayerNorm(WIDTH))

    def error(self, windows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the mean squared error of hidden patches, each normalised, and their variance."""
        patches = patches_of(windows)
        order = torch.rand(patches.shape[:2]).argsort(1)
        seen, hidden = order[:, :KEPT, None], order[:, KEPT:, None]
        visible = patches.gather(1, seen.expand(-1, -1, PIXELS))
        features = self.encoder(self.into(visible) + self.places[seen[..., 0]])
        features = features + self.places[seen[..., 0]]
        masks = self.hidden + self.places[hidden[..., 0]]
        painted = self.out(self.decoder(torch.cat([features, masks], 1))[:, KEPT:])
        wanted = patches.gather(1, hidden.expand(-1, -1, PIXELS))
        wanted = (wanted - wanted.mean(-1, keepdim=True)) / (wanted.std(-1, keepdim=True) + 0.1)
        return (painted - wanted).square().mean(), wanted.var()

    @torch.no_grad()
    def features(self, windows: torch.Tensor) -> np.ndarray:
        """Return the mean features of whole windows."""
        parts = windows.split(256)
        found = [self.encoder(self.into(patches_of(each)) + self.places) for each in parts]
        return torch.cat([each.mean(1) for each in found]).double().numpy()


def _layer() -> nn.Module:
    return nn.TransformerEncoderLayer(
        WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True, norm_first=True, activation="gelu"
    )


def patches_of(windows: torch.Tensor) -> torch.Tensor:
    """Cut windows (B, 8, 32, 32) into (B, 64, 128)."""
    (t, y, x), (frames, height, width) = WINDOW, PATCH
    cut = windows.view(-1, t // frames, frames, y // height, height, x // width, width)
    return cut.permute(0, 1, 3, 5, 2, 4, 6).reshape(-1, TOKENS, PIXELS)


def pretrain(net: Autoencoder, videos: Videos, way: str, steps: int, seed: int) -> dict[str, float]:
    """Train the network; return the seconds that this took, the decodings, and their cost.

    `ratio`: processor time of a decoding over that of training with a sample.
    """
    optimizer = torch.optim.AdamW(net.parameters(), RATE, (0.9, 0.95), weight_decay=0.05)
    repeats, shuffle_buffer = WAYS[way]
    loader = pyecho.EchoLoader(
        videos,
        repeats,
        batch_size=BATCH,
        shuffle_buffer=shuffle_buffer,
        ops=[ops.RandomCrop(WINDOW, axes=(0, 1, 2)), ops.Normalize(0.5, 0.25)],
        shuffle=True,
        seed=seed,
        epochs=steps,
    )
    videos.decoded, videos.seconds = 0, 0.0
    began, trained = time.perf_counter(), time.thread_time()
    with loader:
        batches = chain.from_iterable(repeat(loader))
        for step, windows in zip(range(steps), batches, strict=False):
            pace = min(1, (step + 1) / WARM_UP, 2 * (steps - step) / steps)
            optimizer.param_groups[0]["lr"] = RATE * pace
            optimizer.zero_grad()
            net.error(torch.from_numpy(windows))[0].backward()
            optimizer.step()
        seconds, trained = time.perf_counter() - began, time.thread_time() - trained
    ratio = videos.seconds / videos.decoded / (trained / steps / BATCH)
    return {"seconds": seconds, "decodings": videos.decoded, "ratio": ratio}


def right(x: np.ndarray, tests: np.ndarray, labels: np.ndarray, wanted: np.ndarray) -> float:
    """Train a ridge classifier of windows; return the share of videos that their windows tell."""
    middle, scale = x.mean(0), x.std(0)
    x, tests = (np.c_[(each - middle) / scale, np.ones(len(each))] for each in (x, tests))
    targets = np.eye(SHAPES)[labels.repeat(len(x) // len(labels))]
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ targets)
    scores = (tests @ weights).reshape(len(wanted), -1, SHAPES).sum(1)
    return float((scores.argmax(1) == wanted).mean())


@cache
def data(trained: int, tested: int) -> tuple[Videos, Videos, np.ndarray, Any]:
    """Return videos to train on and to test with, the shapes of all, and windows of both."""
    paths = [FOLDER / f"{number}.mp4" for number in range(TRAINED + tested)]
    paths = paths[:trained] + paths[TRAINED:]  # tests are the same ones, whatever is trained on
    labels = np.array([int(path.stem) % SHAPES for path in paths])
    train, tests = Videos(paths[:trained]), Videos(paths[trained:])
    return train, tests, labels, (train.windows(4), tests.windows(8))


def make_videos(trained: int, tested: int) -> None:
    """Write the videos that are not there."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number in shown([*range(trained), *range(TRAINED, TRAINED + tested)], "videos"):
        make_video(FOLDER / f"{number}.mp4", number % SHAPES, number)


def run_of(way: str, seed: int, steps: int, trained: int, tested: int) -> dict[str, float]:
    """Train in one of WAYS, or not; return what that took, and how good the network is then."""
    torch.set_num_threads(1)
    train, _, labels, windows = data(trained, tested)
    torch.manual_seed(seed)
    net, found = Autoencoder(), {}
    if way in WAYS:
        found = pretrain(net, train, way, steps, seed)
    torch.manual_seed(0)
    with torch.no_grad():
        error, variance = net.error(windows[1][::8])
    found["error"] = float(error / variance)
    found["right"] = right(*map(net.features, windows), labels[:trained], labels[trained:])
    return found


if __name__ == "__main__":
    options = new_parser(__doc__, seeds=3).parse_args()
    sizes = (4, 32, 32) if options.quick else (STEPS, TRAINED, TESTED)
    report = new_report("video-mae", "Uses of a decoded video", options, steps=sizes[0])
    make_videos(*sizes[1:])
    ways = ("untrained", *WAYS)
    turns = [(way, s, *sizes) for s in range(options.seeds) for way in ways[:: 1 - s % 2 * 2]]
    results = results_of(run_of, turns, options.output)

    def of(way: str, name: str) -> Sample:
        return sample(results[(way, seed, *sizes)][name] for seed in range(options.seeds))

    ratio = float(np.median([of(way, "ratio").median for way in WAYS]))
    for way in WAYS:
        took, once = of(way, "seconds"), of("1", "seconds")
        cost = max(1, ratio * of(way, "decodings").median / (sizes[0] * BATCH))
        by_eq_1 = f"{way}: {max(ratio, 1) / cost:.2f} times as fast by Eq. 1, R = {ratio:.1f}"
        report.add(
            "Seconds, by samples of a decoding", [Row(way, took, "s", once, "1", once / took)]
        )
        report.note(by_eq_1)
    for way in ways:
        report.add("Error of hidden pixels / variance", [Row(way, of(way, "error"), "")])
        report.add("Shapes told by a linear classifier", [Row(way, of(way, "right"), "")])
    finish(report, options)
