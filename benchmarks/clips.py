"""Clips of videos and their labels: a clip a decoding, and all clips of a decoded part.

    pip install av; python benchmarks/clips.py

Videos of 320 x 240 are written here, with a keyframe every 48 frames. Prints and writes clips of 16
frames a second, each with a random crop and a flip: of a DataLoader over a data set that decodes
each clip, and of pyecho over parts of 64 clips, as in examples/libraries/with_av.py, which are used
e times. Two workers each.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

import av
import numpy as np
import torch
from common import OUTPUT, ROOT, finish, new_parser, new_report

import pyecho
from pyecho import ops
from pyecho.bench.row import Row
from pyecho.bench.sampling import interleaved
from pyecho.torch import EchoLoader

sys.path.insert(0, str(ROOT / "examples" / "libraries"))
from with_av import CLIP, Parts

FRAMES, HEIGHT, WIDTH, SIDE, MOST, BATCH = 271, 240, 320, 224, 64, 8
BARE = "a clip a decoding"


class Clips(Parts):
    """Clips, each decoded for itself, cropped and flipped."""

    def __getitem__(self, index: int) -> Any:
        """Return a clip."""
        clip = super().__getitem__(index)
        rows, columns, mirrored = (torch.randint(each, ()) for each in (17, 97, 2))
        frames = clip["frames"][:, rows : rows + SIDE, columns : columns + SIDE]
        return clip | {"frames": np.ascontiguousarray(frames[:, :, :: 1 - 2 * int(mirrored)])}


def written(count: int) -> list[str]:
    """Return files, and write those that are not there."""
    folder = OUTPUT / "clips"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path, rng = folder / f"{number}.mp4", np.random.default_rng(number)
        if path.exists():
            continue
        scene = rng.integers(0, 256, (HEIGHT // 8, WIDTH // 4, 3), np.uint8).repeat(8, 0)
        scene = scene.repeat(8, 1)
        part = path.with_suffix(".part")
        with av.open(str(part), "w", format="mp4") as file:
            stream: Any = file.add_stream("libx264", rate=24, options={"g": "48"})
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            for at in range(FRAMES):
                frame = np.ascontiguousarray(scene[:, at : at + WIDTH])
                file.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
            file.mux(stream.encode())
        part.rename(path)
    return [str(folder / f"{number}.mp4") for number in range(count)]


def rate(paths: list[str], factor: int, seconds: float) -> float:
    """Return clips a second after the first batches; by a DataLoader with a factor of 0."""
    if factor:
        both = ("frames", "time")
        crop = [ops.RandomCrop((SIDE, SIDE), axes=(1, 2)), ops.RandomFlip(2)]
        field = pyecho.Field((None, HEIGHT, WIDTH, 3), "uint8", max_bytes=64 << 20)
        loader: Any = EchoLoader(
            Parts(paths, MOST),
            factor,
            batch_size=BATCH,
            shuffle=True,
            num_workers=2,
            shuffle_buffer=12,
            epochs=10**6,
            fields={"frames": field, "time": pyecho.Field((None,), "int64", max_bytes=1 << 20)},
            ops={
                both: [ops.Window(dict.fromkeys(both, range(CLIP)), anchors=(0, -CLIP))],
                "frames": crop,
            },
        )
    else:
        loader = torch.utils.data.DataLoader(
            Clips(paths, 1), BATCH, shuffle=True, num_workers=2, persistent_workers=True
        )
    taken = chain.from_iterable(repeat(loader))
    next(islice(taken, 2, None))
    began, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        count += len(next(taken)["time"])
    return count / passed


if __name__ == "__main__":
    options = new_parser(__doc__, rounds=5).parse_args()
    report = new_report("clips", "Clips of decoded videos", options)
    report.ratio_name = "Times as many"
    paths, seconds = written(2 if options.quick else 12), 0.2 if options.quick else 4
    ways = {BARE: 0} | {f"pyecho, e = {factor}": factor for factor in (1, 4, 16, MOST)}
    calls = {name: partial(rate, paths, factor, seconds) for name, factor in ways.items()}
    found = interleaved("clips a second", options.rounds, calls)
    rows = [Row(name, each, "clips/s", found[BARE], BARE) for name, each in found.items()]
    report.add("Clips a second, two workers, after the first batches", rows)
    finish(report, options)
