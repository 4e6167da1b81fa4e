"""The face of a loader for tools that ask for a `torch.utils.data.DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from pyecho._core import EchoError

if TYPE_CHECKING:
    from pyecho.torch import EchoLoader


class EchoDataset(IterableDataset[Any]):
    """The batches of a loader as an `IterableDataset`; see `pyecho.torch.EchoLoader.as_dataset`."""

    def __init__(self, loader: EchoLoader) -> None:
        self.loader = loader
        # Of the next iteration in a worker, which may be a new process for every epoch.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next epoch; in all workers but the first an empty one."""
        if get_worker_info() is None:
            return iter(self.loader)
        group = self.loader._group
        if group is not None and group.size > 1:
            raise EchoError(
                "a loader with a group talks to the other ranks, which a worker of a DataLoader "
                "cannot; pass num_workers=0"
            )
        if _is_idle():
            return iter(())
        self.loader.set_epoch(int(self._epoch))
        self._epoch += 1
        return iter(self.loader)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self.loader)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch, in this process and in workers."""
        self.loader.set_epoch(epoch)
        self._epoch.fill_(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader."""
        return {} if _is_idle() else self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the loader go on where the state was taken."""
        if not _is_idle():
            self.loader.load_state_dict(state)
            self._epoch.fill_(state["epoch"])


def _is_idle() -> bool:
    """Return True in every worker but the first."""
    worker = get_worker_info()
    return worker is not None and worker.id > 0
