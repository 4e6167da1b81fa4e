"""Loaders of several ranks: their group, and the state of the whole run."""

from __future__ import annotations

import json
import weakref
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from pyecho._core import CheckpointError, ConfigError, EchoError
from pyecho.loader import EchoLoader
from pyecho.run.ranks import Group, check_rank
from pyecho.state.loaded import Loaded, digest, is_named

__all__ = ["Group", "RunState", "TorchGroup"]

MOST_TEXT = 2**26  # characters of the JSON of a state
MOST_PARTS = 2**18  # lists and dicts in it


class TorchGroup:
    """A process group of ``torch.distributed``; see `Group`.

    Collectives go over gloo and the host's memory: over the group itself if that is its backend,
    else over one of its own with the same ranks. They run in the thread that iterates.
    """

    def __init__(self, group: Any) -> None:
        if not isinstance(group, dist.ProcessGroup):
            raise ConfigError(
                "group must be 'auto', None, a ProcessGroup of torch.distributed, or an object "
                f"with rank, size and gather (pyecho.torch.distributed.Group), got {group!r}"
            )
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise ConfigError("this process is not in the group that the loader was given")
        if dist.get_backend(group) != "gloo":
            ranks = dist.get_process_group_ranks(group)
            group = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        # Not owned, so it ends in destroy_process_group(): at the exit of Python its threads may
        # wait for the GIL for ever.
        self._reference = weakref.ref(group)

    def gather(self, values: list[int]) -> list[list[int]]:
        """Return the values of all ranks."""
        group = self._reference()
        if group is None:
            raise EchoError(
                "the process group of the loader is gone; iterate and save before "
                "destroy_process_group(), and make a new loader after it"
            )
        mine = torch.tensor(values, dtype=torch.int64, device="cpu")
        found = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(found, mine, group=group)
        return [each.tolist() for each in found]

    def __deepcopy__(self, memo: Any) -> TorchGroup:
        """Return itself: copies of a loader are in the same group."""
        return self

    def __reduce__(self) -> Any:
        """Refuse."""
        raise TypeError(
            "a loader with a group belongs to its process; make one in each process instead of "
            "sending it there"
        )


class RunState:
    """The state of a run over several ranks, for ``torch.distributed.checkpoint`` (`Stateful`).

    ::

        state = {"model": model.state_dict(), "data": RunState(loader)}
        torch.distributed.checkpoint.save(state, checkpoint_id=path)   # and load() likewise

    It is one small position for all ranks, and holds no items: each rank reads its own from its
    source again, on any number of ranks that divides `shards`.
    """

    def __init__(self, loader: EchoLoader) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """Return the state, the same on all ranks."""
        state = self._loader.state_dict(payload=False)
        if state["rank"] is not None and state["ranks"] > 1:
            raise EchoError(
                "the position of this run is that of one rank alone: its factor is Adaptive, its "
                "passes differ in length, or its source has a state of its own; save state_dict() "
                "of each rank"
            )
        try:
            text = json.dumps(state, default=lambda array: array.tolist())
            same = digest(_state_of(text)) == state["digest"]
        except (TypeError, ValueError, AttributeError):
            same = False
        if not same:
            raise EchoError(
                "a RunState holds JSON, and the state of this source has more in it, such as "
                f"bytes, arrays or keys that are numbers, or more than {MOST_TEXT} characters; "
                "save state_dict() instead, with torch.save()"
            )
        return {"run": text}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the loader go on there."""
        self._loader.load_state_dict(_state_of(Loaded(state)["run"].of(str)))


def _state_of(text: str) -> Any:
    if len(text) > MOST_TEXT:
        raise CheckpointError(f"the state of a run has at most {MOST_TEXT} characters")
    if text.count("[") + text.count("{") > MOST_PARTS:  # of which each takes many times its text
        raise CheckpointError(f"the state of a run has at most {MOST_PARTS} lists and dicts")
    try:
        run = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"the state of a run needs JSON: {error}") from error
    position = run.get("position") if is_named(run) else None
    if is_named(position) and "decisions" in position:
        decisions = Loaded(position["decisions"], "the state['position']['decisions']")
        position["decisions"] = decisions.numbers(int, 0, 2**31 - 1, None).astype(np.int32)
    return run


def group_of(group: Any) -> Any:
    """Return what a loader's option `group` names; None: this process only."""
    is_own = all(hasattr(group, name) for name in ("rank", "size", "gather"))
    if is_own and not isinstance(group, dist.ProcessGroup):
        check_rank(group)
        return group
    if isinstance(group, str) and group == "auto":
        if not dist.is_available() or not dist.is_initialized():
            return None
        group = dist.group.WORLD
    found = TorchGroup(group)
    return found if found.size > 1 else None
