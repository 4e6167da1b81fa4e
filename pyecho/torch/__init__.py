"""The loader for PyTorch, and its face for tools that ask for a `DataLoader`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info
except ImportError as error:
    raise ImportError("pyecho.torch needs PyTorch: pip install torch") from error

import pyecho
from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.config import Factor, Options, with_options
from pyecho.device.place import Device, check_options
from pyecho.device.tensors import TorchAdapter
from pyecho.run.pipeline import MakePipeline
from pyecho.state.loaded import Loaded
from pyecho.warn import warn

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Device", "EchoLoader"]


def _rank() -> int | None:
    """Return the rank of this process, None if there are no others."""
    world = torch.distributed
    if not (world.is_available() and world.is_initialized() and world.get_world_size() > 1):
        return None
    return world.get_rank()


class EchoLoader(pyecho.EchoLoader):
    """A `pyecho.EchoLoader` whose batches are torch tensors, on the host or on a device.

    Arguments, methods and order of the output are as in `pyecho.EchoLoader`. In example echoing
    tensors, arrays and numbers of the examples arrive as tensors with their dtype; every batch is
    private and writable. In batch echoing items pass through as they are, and a tensor that was
    changed in place between two uses raises `EchoMutated`.

    With a `device`, batches are copied there while the consumer computes, on a stream of pyecho's;
    the stream that is current when a batch is taken waits for it, the host does not. What is not a
    tensor or array stays as it is, and so does `EchoInfo`; in batch echoing also arrays of which
    torch has no dtype (foreign byte order, dates, strings, records), and tensors that the source
    has made on the device: the consumer's stream waits for the one that was current there.

    Parameters
    ----------
    device
        Where batches go: ``"cuda:0"``, its number, or a `torch.device`; None or ``"cpu"`` leaves
        them on the host. Or a `Device`, which also echoes, converts and augments there, and bounds
        the memory. The driver is loaded with the first batch.
    group
        The ranks whose loaders work together: ``"auto"`` for all of ``torch.distributed`` (none
        where it is not in use), or a process group. Every rank passes a source of its own part,
        rank r items r, r + ranks, ... of the whole, and makes the loader and iterates it in step
        with the others, since making it and beginning an epoch are collective. All ranks get
        equally many batches in every epoch, as many as the longest source needs; so sources need a
        length, or the loader `steps_per_epoch`. See docs/ranks.md.

    Raises
    ------
    ConfigError
        If `device` names none. In example echoing, if the source yields tensors that are not dense
        and in host memory, or arrays whose dtype torch does not have; in batch echoing with a
        `device`, if it yields masked arrays, or host tensors that are not dense. With the first
        batch, if the device is not there, or needs more memory than its `Device` allows.
    CudaError
        With the first batch, if it is a CUDA device and CUDA is missing.
    """

    _adapter = TorchAdapter()

    @with_options
    def __init__(
        self,
        source: Any,
        factor: Factor = 2,
        *,
        device: Device | torch.device | str | int | None = None,
        group: Any = None,
        **options: Unpack[Options],
    ) -> None:
        self._on = device if isinstance(device, Device) else Device(device)
        if group is not None:
            from pyecho.torch.distributed import group_of

            self._group = group_of(group)
        if type(source).__module__ == "accelerate.data_loader":
            raise ConfigError(
                "this DataLoader went through accelerator.prepare(), and tells Accelerate and the "
                "other processes where it is, which is ahead of your training; use "
                "pyecho.integrations.accelerate.EchoLoader(source, ..., accelerator=accelerator)"
            )
        super().__init__(source, factor, **options)
        if isinstance(source, DataLoader):
            self._warn_of(source)
        elif self._config.shuffle and self._group is None and _rank() is not None:
            warn(
                f"there are {torch.distributed.get_world_size()} ranks, and each reads the whole "
                "source in the same order; pass group='auto', with which shuffle=True deals the "
                "items to the ranks, or a sampler that does",
            )
        check_options(self._on, self._config)

    def state_dict(self, *, payload: bool | None = None) -> dict[str, Any]:
        """Return where the consumer is; see `pyecho.EchoLoader.state_dict`.

        Parameters
        ----------
        payload
            Save the items that are not used up. None: yes, but among several ranks of
            `torch.distributed` no, if the source can be read again and the factor is a number. Such
            a state serves every rank whose passes are as long, and frameworks keep only that of the
            first. Any other state of a rank is refused by the others, also after a pass over a
            source without a length.
        """
        in_group = self._group is not None and self._group.size > 1
        rank, source = None if in_group else _rank(), self._source
        own = source.native or source.holder is not None or self._config.adaptive is not None
        own = own or source.order(None) is not None
        if payload is None:
            payload = own or not (in_group or rank is not None)
        state = super().state_dict(payload=payload)
        position = state["position"]
        if rank is not None and position is not None:
            known = position["passes"] or position["segment"]  # lengths of this rank's passes
            if own or state["unspent"] or known:
                state["of_rank"] = rank
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called; see `pyecho.EchoLoader.load_state_dict`."""
        is_own = isinstance(state, dict) and "of_rank" in state
        self._source.seen.shared = _rank() is not None and not is_own
        if isinstance(state, dict) and "of_rank" in state:
            of_rank, rank = Loaded(state)["of_rank"].count(), _rank()
            state = {name: value for name, value in state.items() if name != "of_rank"}
            if rank is not None and of_rank != rank:
                raise CheckpointError(
                    f"the state is that of rank {of_rank}, and this is rank {rank}: save one for "
                    f"each rank, and load that of rank {rank}; state_dict(payload=False) serves "
                    "all only if passes have one length, the factor is a number, and the source "
                    "has no state or order of its own"
                )
        super().load_state_dict(state)

    def as_dataset(self) -> EchoDataset:
        """Return the batches as an `IterableDataset`, for tools that ask for a `DataLoader`.

            DataLoader(loader.as_dataset(), batch_size=None)

        Without workers it iterates this loader, whose methods tell its state and statistics. With
        ``num_workers=n`` a copy of the loader runs in the first worker, and the others yield
        nothing; `epochs` and `steps_per_epoch` then need ``persistent_workers=True``. Such a loader
        must be picklable where workers are spawned.
        """
        return EchoDataset(self)

    def __getitem__(self, index: object) -> NoReturn:
        """Raise `TypeError`: batches have no numbers."""
        raise TypeError(
            "an EchoLoader is iterated, and a DataLoader of one is DataLoader("
            "loader.as_dataset(), batch_size=None)"
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse what a `DataLoader` refuses, and for its reason: nothing would happen."""
        if name in ("batch_size", "batch_sampler", "dataset", "drop_last", "sampler"):
            raise ConfigError(f"{name} belongs to the source or the options; make a new loader")
        super().__setattr__(name, value)

    @property
    def batch_size(self) -> int | None:
        """Rows of a batch; in batch echoing as the source tells, None if it does not."""
        size: int | None = getattr(self._source.object, "batch_size", None)
        return self._config.batch_size or size

    @property
    def dataset(self) -> Any:
        """The dataset of the source, else the source; `AttributeError` for an `IterableDataset`."""
        found = getattr(self._source.object, "dataset", self._source.object)
        if isinstance(found, IterableDataset):
            # Frameworks say that the loader of one must not have a length.
            raise AttributeError("the dataset of this loader is an IterableDataset")
        return found

    batch_sampler: ClassVar[None] = None  # beside a sampler Lightning expects one

    @property
    def sampler(self) -> Any:
        """For Lightning, which calls ``loader.sampler.set_epoch(n)`` as epoch n begins."""

        def set_epoch(epoch: int) -> None:
            if (
                self._run.epochs.number != epoch
            ):  # batches of the running epoch may be taken already
                self.set_epoch(epoch)

        return SimpleNamespace(set_epoch=set_epoch)

    def _warn_of(self, source: DataLoader[Any]) -> None:
        """Warn if each rank seems to read the whole source, or batches are made of batches."""
        config, group, data = self._config, self._group, torch.utils.data
        sampler: Any = source.sampler
        if source.batch_sampler is not None:  # the other one may be a stand-in
            batches = source.batch_sampler
            sampler = batches.sampler if type(batches) is data.BatchSampler else None
        has_others = _rank() is not None if group is None else group.size > 1
        if has_others and type(sampler) in (data.SequentialSampler, data.RandomSampler):
            warn(
                f"there are {group.size if group else torch.distributed.get_world_size()} ranks, "
                "and each reads the whole dataset of this DataLoader, unless that is its part "
                "already; pass it a DistributedSampler"
                + ("" if group else ", and group='auto' to the EchoLoader"),
            )
        if None not in (source.batch_size, config.batch_size) and not config.unbatch:
            warn(
                f"the DataLoader yields batches (of {source.batch_size}), and batch_size="
                f"{config.batch_size} makes batches of them; pass unbatch=True to build new "
                "batches from their examples, or leave out batch_size to echo them as they are",
            )

    def _may_read_in_consumer(self) -> bool:
        return self._on.device is None

    def _pipeline_maker(self) -> MakePipeline:
        if self._on.device is None:
            return super()._pipeline_maker()
        from pyecho.device.pipeline import device_pipeline

        return partial(device_pipeline, adapter=self._adapter, there=self._on)


class EchoDataset(IterableDataset[Any]):
    """The batches of a loader as an `IterableDataset`; see `pyecho.torch.EchoLoader.as_dataset`."""

    def __init__(self, loader: EchoLoader) -> None:
        self.loader = loader
        # Of the next iteration in a worker, which may be a new process for every epoch.
        self._epoch = torch.zeros((), dtype=torch.int64, device="cpu")
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
