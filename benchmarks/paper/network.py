"""The slow network of Fig. 4: images over HTTP, at the bandwidth that gives the wanted R."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from PIL import Image

from paper.conditions import Goal, Job
from paper.experiments import condition
from paper.fashion import Fashion
from paper.train import Result, train
from pyecho.demo.images import LabelledPath
from pyecho.demo.source import RemoteImages, ServerProcess

RATIO = 6.0
CALIBRATION_FACTOR = 4
CALIBRATION_STEPS = (40, 80, 160)
TIMED_BATCHES = 10


@dataclass(frozen=True)
class Line:
    """The speed of the network.

    Parameters
    ----------
    bandwidth
        The limit of the server, in bytes of images a second.
    upstream_seconds
        t_up: time of a batch at that bandwidth, measured while the source never waits.
    """

    bandwidth: float
    upstream_seconds: float


class Network:
    """The training images as files behind a server, which lives as long as the context.

    Parameters
    ----------
    workload
        Where the images come from.
    cache
        The folder that keeps the files between sessions.
    """

    def __init__(self, workload: Fashion, cache: Path) -> None:
        self._workload = workload
        self._root = cache / f"images-{workload.data}"
        if not self._root.is_dir():
            self._write_images()
        images, labels = workload.arrays["image"], workload.arrays["label"]
        self._shape = images.shape[1:]
        self._paths = [
            LabelledPath(self._path(self._root, index), int(label))
            for index, label in enumerate(labels)
        ]
        self._server = ServerProcess(self._root)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def calibrate(self) -> Line:
        """Limit the bandwidth so that t_up is `RATIO` times t_down, and measure t_up.

        t_down is measured under the conditions of a real run, as in the demonstration: every round
        trains under the limit that the previous round found; the first round has no limit.
        """
        workload = self._workload
        of = condition(workload.name, "before", CALIBRATION_FACTOR)
        batch_bytes = of.batch_size * fmean(image.path.stat().st_size for image in self._paths)
        bandwidth = float("inf")
        for steps in CALIBRATION_STEPS:
            goal = Goal(None, steps * of.batch_size // of.factor)
            job = Job(of, goal, workload.rate, seed=0, timed=True)
            busy = self.train(job, bandwidth).busy_seconds
            bandwidth = batch_bytes / (RATIO * busy)
        return Line(bandwidth, self._time_source(of.batch_size, bandwidth))

    def train(self, job: Job, bandwidth: float) -> Result:
        """Train from the images as they arrive."""
        self._server.set_bandwidth(bandwidth)
        with closing(self._source(job.seed)) as source:
            return train(self._workload, job, _endless(source))

    def _time_source(self, batch_size: int, bandwidth: float) -> float:
        """Return the seconds for a batch, after the first one."""
        self._server.set_bandwidth(bandwidth)
        with closing(self._source(seed=0)) as source:
            examples = iter(source)
            start = time.perf_counter()
            for count, _ in enumerate(islice(examples, (TIMED_BATCHES + 1) * batch_size), 1):
                if count == batch_size:
                    start = time.perf_counter()
            return (time.perf_counter() - start) / TIMED_BATCHES

    def _source(self, seed: int) -> RemoteImages:
        channels, height, width = self._shape
        shape = (channels, height, width)
        return RemoteImages(self._server.port, self._root, self._paths, shape, seed=seed)

    def _write_images(self) -> None:
        self._root.parent.mkdir(parents=True, exist_ok=True)
        # Moved into place when it is complete.
        with tempfile.TemporaryDirectory(dir=self._root.parent) as name:
            folder = Path(name) / "images"
            folder.mkdir()
            for index, image in enumerate(self._workload.arrays["image"]):
                Image.fromarray(image[0]).save(self._path(folder, index))
            shutil.move(folder, self._root)

    @staticmethod
    def _path(folder: Path, index: int) -> Path:
        return folder / f"{index:05d}.png"


def _endless(source: RemoteImages) -> Iterator[dict[str, Any]]:
    while True:
        for example in source:
            yield {**example, "image": example["image"].transpose(2, 0, 1)}  # channels first
