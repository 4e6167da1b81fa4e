"""Finds out what decides between remedies: memory, and how the source scales with workers."""

from __future__ import annotations

import copy
import multiprocessing
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyecho._core import Closed, ConfigError
from pyecho.tools.info import found_in

if TYPE_CHECKING:
    from pyecho.loader import EchoLoader


def free_memory() -> int | None:
    """Return the bytes that the system could still give this process; None if it does not say."""
    available = found_in(Path("/proc/meminfo"), r"^MemAvailable:\s+(\d+)")
    if available is None:
        return None
    free = int(available) << 10
    group = Path("/sys/fs/cgroup")
    most, used = (found_in(group / f"memory.{name}", r"(\d+)") for name in ("max", "current"))
    if most is not None and used is not None:  # most is "max" without a limit
        free = min(free, max(0, int(most) - int(used)))
    return free


def is_data_loader(source: Any) -> bool:
    """Return True for a `DataLoader` of PyTorch, not of a class derived from it."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and type(source) is data.DataLoader


def with_workers(given: EchoLoader, count: int) -> EchoLoader:
    """Return a loader of the same source and options, with so many workers of pyecho or PyTorch.

    Raises
    ------
    ConfigError
        If the source has no items by index.
    """
    source = given._source.object
    if not is_data_loader(source):
        return given._variant(source=source, num_workers=count)
    if source._dataset_kind != 0:
        raise ConfigError("a dataset without items by index shares out its work itself")
    loader = copy.copy(source)
    loader.num_workers, loader._iterator = count, None
    loader.prefetch_factor = loader.prefetch_factor or 2
    return given._variant(source=loader)


def times_of_workers(
    given: EchoLoader, upstream: float, run: Callable[[EchoLoader], float]
) -> tuple[dict[int, float], str]:
    """Return the source's seconds for a batch with one and two workers, or why there are none.

    With w workers already: with w, which is known (`upstream`), and 2 w. `run` measures a loader,
    and raises `Closed` if that takes too long.
    """
    source = given._source.object
    now = source.num_workers if is_data_loader(source) else given._config.num_workers
    times = {now: upstream} if now else {}
    others = {*multiprocessing.active_children()}
    try:
        for count in (2 * now,) if now else (1, 2):
            times[count] = run(with_workers(given, count))
    except BaseException as error:  # of the source in a worker, or one without items by index
        for worker in {*multiprocessing.active_children()} - others:
            worker.kill()  # it may hang
            worker.join()
        if isinstance(error, Closed):
            return {}, f"{count} of them took too long"
        if isinstance(error, Exception):
            return {}, str(error).partition("\n")[0].rstrip(".") or type(error).__name__
        raise
    return times, ""
