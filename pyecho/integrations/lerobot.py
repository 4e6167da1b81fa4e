"""Decodes LeRobot's episodes in chunks, of which each use takes another window.

::

    dataset = LeRobotDataset("lerobot/pusht", delta_timestamps=deltas)
    source = lerobot.chunks(dataset, frames=32)
    loader = pyecho.torch.EchoLoader(
        source, 32, batch_size=64, shuffle=True, num_workers=2, shuffle_buffer=200,
        fields=source.fields, ops=lerobot.windows(dataset),
    )

Batches are those of a DataLoader over the dataset: the same keys, ``*_is_pad`` and ``task`` too,
the same numbers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pyecho import ops
from pyecho._core import ConfigError, EchoError
from pyecho.checked import checked_int
from pyecho.items.spec import Field

__all__ = ["Chunks", "chunks", "windows"]

Deltas = Mapping[str, Sequence[float]]
CAMERAS = ("image", "video")
NUMBERED = ("episode_index", "task_index", "subtask_index")


def chunks(dataset: Any, *, frames: int, delta_timestamps: Deltas | None = None) -> Chunks:
    """Return the episodes in chunks, each of which is decoded once.

    Parameters
    ----------
    dataset
        A ``LeRobotDataset`` (version 3), of all or some episodes, without ``image_transforms``.
    frames
        Most anchors of a chunk. What windows reach beyond them is in it, too: of cameras as much as
        their own windows reach.
    delta_timestamps
        As LeRobot's: seconds from the anchor, by keys. None: the dataset's.
    """
    return Chunks(dataset, frames, delta_timestamps)


def windows(dataset: Any, delta_timestamps: Deltas | None = None) -> dict[Any, list[Any]]:
    """Return ``ops`` that make a sample of the dataset from a chunk; arguments as of `chunks`.

    Images become floats from 0 to 1, as LeRobot's. Further operations on a camera go into the list
    under its key, before the last one, with the axes ``(-2, -1)``.
    """
    deltas = _offsets_of(dataset, delta_timestamps)
    taken: dict[str, Any] = {}
    for key in _keys_of(dataset):
        offsets, first = deltas.get(key, [0]), _reach(deltas, key)[0]
        places = [offset - first for offset in offsets]
        if key in deltas:
            taken[f"{key}_is_pad"] = places
        # LeRobot leaves out the axis of a single frame of a video.
        is_one = key not in deltas or (len(places) == 1 and key in dataset.meta.video_keys)
        taken[key] = places[0] if is_one else places
    cameras = [key for key in taken if dataset.features.get(key, {}).get("dtype") in CAMERAS]
    first, last = _reach(deltas, "index")
    window = ops.Window(taken, anchors=(0, first - last - 1))
    return {tuple(taken): [window]} | {key: [ops.Normalize(0, 1)] for key in cameras}


class Chunks:
    """A source of chunks by index, see `chunks`.

    A chunk has the keys of a sample. Its leaves have a first axis of frames, those of `index` the
    anchors alone, and never go beyond an episode: there the first or last frame is repeated. All
    anchors of a chunk have one task, and the same texts. Each is in one chunk, and chunks of an
    episode are of about one size.
    """

    def __init__(self, dataset: Any, frames: int, delta_timestamps: Deltas | None = None) -> None:
        frames = checked_int("frames", frames, 1, 2**31)
        if len(dataset.hf_dataset) == 0:
            raise ConfigError(
                "the dataset has no rows, or was recorded here and has not read them: open it anew "
                "by LeRobotDataset(repo_id, root)"
            )
        if dataset.image_transforms is not None:
            raise ConfigError(
                "chunks are decoded once and used several times, so the dataset's image_transforms "
                "would be the same each time; leave them out, and pass such operations in ops="
            )
        self._dataset = dataset
        self._most = frames
        self._offsets = _offsets_of(dataset, delta_timestamps)
        self._decoders: tuple[int, dict[Any, Any]] = (0, {})
        kinds = {key: dataset.features[key]["dtype"] for key in _keys_of(dataset)}
        numbers = [key for key, kind in kinds.items() if kind not in CAMERAS]
        images = [[key] for key, kind in kinds.items() if kind == "image"]
        self._rows, *others = (
            dataset.hf_dataset.select_columns(keys).with_format("numpy")
            for keys in (numbers, *images)
        )
        self._images = {key: rows for [key], rows in zip(images, others, strict=True)}
        known = [key for key in NUMBERED if key in numbers]
        self._texts = [key for key in dataset.features if key not in kinds]
        alike = dataset.hf_dataset.select_columns([*known, *self._texts]).with_format("numpy")
        self._table = alike[:]
        changes = np.any([each[1:] != each[:-1] for each in self._table.values()], axis=0)
        ends = [*(np.flatnonzero(changes) + 1).tolist(), len(changes) + 1]
        self._ranges: list[tuple[int, int]] = []
        for begin, end in pairwise([0, *ends]):
            parts = -(-(end - begin) // frames)
            cuts = [begin + (end - begin) * part // parts for part in range(parts + 1)]
            self._ranges += pairwise(cuts)

    def __len__(self) -> int:
        """Return the number of chunks."""
        return len(self._ranges)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker process needs: it opens files anew."""
        return vars(self) | {"_decoders": (0, {})}

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return a chunk, decoded."""
        dataset, (begin, end) = self._dataset, self._ranges[index]
        alike = {key: column[begin] for key, column in self._table.items()}
        episode = int(alike["episode_index"])
        start, stop = np.searchsorted(self._table["episode_index"], [episode, episode + 1]).tolist()
        wanted = {
            key: np.arange(begin + first, end + last)
            for key in _keys_of(dataset)  # the first one, "index", counts the anchors
            for first, last in [_reach(self._offsets, key)]
        }
        real = {key: each.clip(start, stop - 1) for key, each in wanted.items()}
        low = min(each[0] for each in real.values())
        rows = self._rows[low : max(each[-1] for each in real.values()) + 1]
        chunk: dict[str, Any] = {}
        for key, places in real.items():
            first, last = int(places[0]), int(places[-1]) + 1
            if key in rows:
                leaf = rows[key][first - low : last - low]
            elif key in self._images:
                leaf = self._images[key][first:last][key].transpose(0, 3, 1, 2)
            else:
                leaf = self._decode(key, episode, rows["timestamp"][first - low : last - low])
            is_pad = places != wanted[key]
            chunk[key] = leaf[places - first] if is_pad.any() else leaf
            if key in self._offsets:
                chunk[f"{key}_is_pad"] = is_pad
        chunk |= {key: str(alike[key]) for key in self._texts}
        chunk["task"] = dataset.meta.tasks.iloc[int(alike["task_index"])].name
        if "subtask_index" in alike and dataset.meta.subtasks is not None:
            chunk["subtask"] = dataset.meta.subtasks.iloc[int(alike["subtask_index"])].name
        return chunk

    @property
    def fields(self) -> dict[str, Field]:
        """The ``fields=`` of the loader, since chunks differ in size."""
        found = {}
        for key, leaf in self[0].items():
            if not isinstance(leaf, str):
                first, last = _reach(self._offsets, key.removesuffix("_is_pad"))
                most = (self._most + last - first) * leaf[0].nbytes
                found[key] = Field((None, *leaf.shape[1:]), leaf.dtype, max_bytes=most)
        return found

    def _decode(self, key: str, episode: int, stamps: Any) -> Any:
        """Return frames of a video as bytes, channels first, decoded one after the other."""
        dataset = self._dataset
        path = str(dataset.root / dataset.meta.get_video_file_path(episode, key))
        offset = dataset.meta.episodes[episode][f"videos/{key}/from_timestamp"]
        stamps = stamps.astype(float) + offset
        if dataset.video_backend != "torchcodec":
            from lerobot.datasets.video_utils import decode_video_frames

            given = (path, stamps.tolist(), dataset.tolerance_s, dataset.video_backend)
            return (decode_video_frames(*given).numpy() * 255).round().astype(np.uint8)
        decoder = self._decoder(path)
        numbers = np.rint(stamps * decoder.metadata.average_fps).astype(int).tolist()
        found = decoder.get_frames_at(numbers)
        apart = np.abs(found.pts_seconds.numpy() - stamps).max()
        if apart >= dataset.tolerance_s:
            raise EchoError(
                f"frames of {key!r} in episode {episode} are up to {apart:.6f} s from their "
                f"timestamps, and tolerance_s is {dataset.tolerance_s}; repair {path}, or pass "
                "LeRobotDataset a larger tolerance_s"
            )
        return found.data.numpy()

    def _decoder(self, path: str) -> Any:
        """Return the decoder of a file, which stays open in this process."""
        from torchcodec.decoders import VideoDecoder

        if self._decoders[0] != os.getpid():
            self._decoders = (os.getpid(), {})
        known = self._decoders[1]
        if path not in known:
            known[path] = VideoDecoder(path, seek_mode="approximate")
        return known[path]


def _keys_of(dataset: Any) -> list[str]:
    """Return the keys that have numbers, "index" first."""
    keys = [key for key, feature in dataset.features.items() if feature["dtype"] != "string"]
    return sorted(keys, key=lambda key: key != "index")


def _offsets_of(dataset: Any, deltas: Deltas | None) -> dict[str, list[int]]:
    """Return offsets in frames; `ConfigError` where they are no whole ones, as LeRobot has it."""
    deltas = dataset.delta_timestamps if deltas is None else deltas
    found = {}
    for key, seconds in (deltas or {}).items():
        frames = [second * dataset.fps for second in seconds]
        if key not in dataset.features:
            raise ConfigError(
                f"delta_timestamps has the key {key!r}, and the dataset has {[*dataset.features]}"
            )
        if any(abs(each - round(each)) > dataset.tolerance_s * dataset.fps for each in frames):
            raise ConfigError(
                f"delta_timestamps of {key!r} must be multiples of 1/{dataset.fps} s, within "
                f"{dataset.tolerance_s} s, got {list(seconds)}"
            )
        found[key] = list(map(round, frames))
    return found


def _reach(offsets: Mapping[str, Sequence[int]], key: str) -> tuple[int, int]:
    """Return the least and the largest offset of a key, 0 where it has none."""
    given = offsets.get(key, [0])
    return min(given), max(given)
