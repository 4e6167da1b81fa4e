"""The slow network of Fig. 4: images over HTTP, at the bandwidth that gives the wanted R."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from statistics import fmean
from typing import Any

from PIL import Image

from paper.data import FOLDER
from paper.training import Condition, Goal, Run, train
from paper.workloads import workload
from pyecho import EchoLoader
from pyecho.demo.images import LabelledPath
from pyecho.demo.source import RemoteImages, ServerProcess

RATIO = 6.0
TIMED_BATCHES = 10
MOST_EXAMPLES = 1_000_000
"""More than any run takes."""
Line = tuple[float, float]
"""The server's limit in bytes of images a second, and t_up of a batch at that limit."""


def calibrate(condition: Condition, *steps: int) -> Line:
    """Limit the bandwidth so that t_up is `RATIO` times t_down, and measure t_up.

    t_down is measured under the conditions of a real run, as in the demonstration: every round
    trains for some steps under the limit that the previous round found; the first has no limit.
    """
    size = condition.batch_size
    batch_bytes = size * fmean(image.path.stat().st_size for image in _images())
    bandwidth = float("inf")
    for count in steps:
        goal = Goal(None, count * size // condition.factor)
        run = train_over(bandwidth, condition, goal, workload(condition.workload).rate, 0)
        bandwidth = batch_bytes / (RATIO * run["busy_seconds"])
    with ExitStack() as stack:
        examples = _endless(bandwidth, 0, stack)
        for _ in islice(examples, size):
            pass
        start = time.perf_counter()
        for _ in islice(examples, TIMED_BATCHES * size):
            pass
        return bandwidth, (time.perf_counter() - start) / TIMED_BATCHES


def train_over(bandwidth: float, condition: Condition, goal: Goal, rate: float, seed: int) -> Run:
    """Train from the images as they arrive."""
    with ExitStack() as stack:
        return train(condition, goal, rate, seed, _endless(bandwidth, seed, stack))


def _images() -> list[LabelledPath]:
    """Return the training images as files, which are written once."""
    data = workload("fashion-more")
    folder = FOLDER / f"images-{data.data}"
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{index:05d}.png" for index in range(len(data.arrays["image"]))]
    for path, image in zip(paths, data.arrays["image"], strict=True):
        if not path.exists():
            part = path.with_suffix(".part")
            Image.fromarray(image[0]).save(part, "PNG")
            part.rename(path)
    labels = data.arrays["label"].tolist()
    return [LabelledPath(path, label) for path, label in zip(paths, labels, strict=True)]


def _endless(bandwidth: float, seed: int, stack: ExitStack) -> Iterator[dict[str, Any]]:
    images = _images()
    root = images[0].path.parent
    server = stack.enter_context(closing(ServerProcess(root)))
    server.set_bandwidth(bandwidth)
    source = stack.enter_context(closing(RemoteImages(server.port, root, images, (1, 28, 28))))
    order = list(islice(workload("fashion-more").orders(seed), MOST_EXAMPLES))
    read = {"sampler": order, "num_workers": 8, "workers": "thread"}
    loader = stack.enter_context(EchoLoader(source, 1, **read))
    # Channels first.
    return ({**each, "image": each["image"].transpose(2, 0, 1)} for each in loader)
