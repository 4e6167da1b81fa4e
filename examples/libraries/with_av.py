"""Clips of videos and their labels: each part of a video is decoded once and gives all its clips.

With torchcodec instead of PyAV, `decode` is ``VideoDecoder(path).get_frames_in_range(begin, end)``
and its ``.data.numpy()``, which has the channels before rows and columns.
"""

from collections import Counter
from itertools import pairwise

import av
import numpy as np

import pyecho
from pyecho import ops
from pyecho.torch import EchoLoader

CLIP = 16  # frames


def decode(path, begin, end):
    """Return some frames, decoded one after the other from the last keyframe before them."""
    with av.open(path) as file:
        stream = file.streams.video[0]
        ticks = 1 / (stream.average_rate * stream.time_base)  # of a frame
        first = stream.start_time or 0
        file.seek(first + int(begin * ticks), stream=stream)
        frames = []
        for frame in file.decode(stream):
            number = round((frame.pts - first) / ticks)
            if begin <= number < end:
                frames.append(frame.to_ndarray(format="rgb24"))
            if number >= end - 1:
                break
    return np.stack(frames)


class Parts:
    """Parts of videos, which overlap by a clip but one frame: so each clip is in one of them."""

    def __init__(self, paths, most):
        """`most`: clips of a part."""
        self.parts = []
        for path in paths:
            with av.open(path) as file:
                clips = file.streams.video[0].frames - CLIP + 1
            count = -(-clips // most)
            cuts = [clips * part // count for part in range(count + 1)]
            self.parts += [(path, *ends) for ends in pairwise(cuts)]

    def __len__(self):
        return len(self.parts)

    def __getitem__(self, index):
        path, begin, end = self.parts[index]
        numbers = np.arange(begin, end + CLIP - 1)
        return {"frames": decode(path, begin, numbers[-1] + 1), "time": numbers}


if __name__ == "__main__":  # for worker processes
    paths = [f"{number}.mp4" for number in range(3)]
    for path in paths:  # stands for your files
        with av.open(path, "w") as file:
            stream = file.add_stream("mpeg4", rate=24)
            stream.width, stream.height = 96, 64
            for number in range(100):
                frame = np.full((64, 96, 3), 2 * number, np.uint8)
                file.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
            file.mux(stream.encode())

    window = ops.Window({"frames": range(CLIP), "time": range(CLIP)}, anchors=(0, -CLIP))
    on_images = [ops.RandomResizedCrop(48, scale=(0.5, 1)), ops.RandomFlip(2), ops.Normalize(0, 1)]
    loader = EchoLoader(
        Parts(paths, 17),
        17,  # uses of a part: as many as it has clips
        batch_size=15,
        shuffle=True,
        num_workers=2,
        shuffle_buffer=8,  # parts in the pool
        fields={
            "frames": pyecho.Field((None, 64, 96, 3), "uint8", max_bytes=64 << 20),
            "time": pyecho.Field((None,), "int64", max_bytes=1 << 20),
        },
        ops={("frames", "time"): [window], "frames": on_images},
    )
    found = Counter()
    for batch in loader:
        assert batch["frames"].shape == (15, 16, 48, 48, 3)
        assert (batch["frames"][..., 24, 24, 0] * 255 - 2 * batch["time"]).abs().max() < 6
        found.update(batch["time"][:, 0].tolist())
    assert found == dict.fromkeys(range(85), 3)  # each clip of three videos, once
