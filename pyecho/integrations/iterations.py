"""Iterations for libraries that look at the data before they use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LOOKS = 2
"""Batches that Keras and tf.data look at beforehand, to know what they are like."""

_END = object()


class Iterations:
    """The iterations of a loader, one after the other, for libraries that look at batches first.

    An iteration that is left within its first `LOOKS` batches was a look: the next one begins with
    the same batches and goes on from there. Any other one that is left is over, as with the loader.
    """

    def __init__(self, loader: Any) -> None:
        loader._run.keeps = True
        self._loader = loader
        self._looked: tuple[Iterator[Any], list[Any]] | None = None

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of the next iteration."""
        looked = self._looked
        if looked is None:
            looked = self._looked = (iter(self._loader), [])
        batches, seen = looked
        place = 0
        while True:
            if place < len(seen):
                batch = seen[place]
            else:
                batch = next(batches, _END)
                if len(seen) < LOOKS and batch is not _END:
                    seen.append(batch)
                elif self._looked is looked:
                    self._looked = None
            if batch is _END:
                return
            place += 1
            yield batch
            del batch
