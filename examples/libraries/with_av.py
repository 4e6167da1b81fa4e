"""Clips of videos, as MAE-ST trains: each video is decoded once and gives four of 16 frames."""

import av
import numpy as np

import pyecho
from pyecho import ops
from pyecho.torch import EchoLoader

paths = [f"{number}.mp4" for number in range(3)]
for path in paths:  # stands for your files
    with av.open(path, "w") as file:
        stream = file.add_stream("mpeg4", rate=24)
        stream.width, stream.height = 96, 64
        for number in range(100):
            frame = np.full((64, 96, 3), number, np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(frame)))
        file.mux(stream.encode())


def videos():
    for path in paths:
        with av.open(path) as file:
            frames = list(file.decode(video=0))[::4]
            yield np.stack([frame.to_ndarray(format="rgb24") for frame in frames])


loader = EchoLoader(
    videos(),
    4,
    batch_size=6,
    shuffle_buffer=3,  # videos in the pool
    fields=pyecho.Field((None, None, None, 3), "uint8", max_bytes=64 << 20),
    ops=[
        ops.RandomCrop(16, axes=0),
        ops.RandomResizedCrop(48, scale=(0.5, 1)),
        ops.RandomFlip(axis=2),
        ops.Normalize(0.45, 0.225),
    ],
)
assert [clips.shape for clips in loader] == [(6, 16, 48, 48, 3)] * 2
