"""Locates a position in a source: the pass to go on in, and the items to read again."""

from __future__ import annotations

from typing import NamedTuple

from pyecho import _core
from pyecho._core import CheckpointError
from pyecho.config import Config
from pyecho.fitted import Fitted, Wiring
from pyecho.run.extent import may_have
from pyecho.run.reread import Wanted
from pyecho.source import Source
from pyecho.state.position import Position, Snapshot


class Located(NamedTuple):
    """The place in a source where a run goes on."""

    at: Position  # for passes of the source's length
    number: int | None  # of the pass to go on in; None: all are read
    item: int  # to go on with there, counted in the pass
    following: int  # number of the pass after that
    wanted: list[Wanted]  # items that the plan holds


def located(source: Source, config: Config, saved: Snapshot, length: int | None) -> Located:
    """Return the place of a snapshot in a source that has, or has had, passes of this length.

    The source is `unsure` afterwards if it had no length before. Raises `CheckpointError` if it has
    another one.
    """
    at = saved.at.of_length(length, config)
    if at.items is None and at.passes is not None and length is not None:
        source.doubt("had no length that was right when the state was taken")
        length = None
    if at.uses is not None and not may_have(config, at.items or 0, at.uses):
        raise CheckpointError(
            f"the state tells of {at.uses} uses of {at.items} items in a pass, which cannot "
            "be: the source has another length, or the state is damaged"
        )
    wanted: list[Wanted] = []
    number, index = at.passes_ended, at.open_items
    if saved.unspent is None:
        fitted = Fitted(config, config.capacity_for(at.items), config.prefetch, Wiring())
        (numbers, _), number, index, _ = _core.SlotPlan(fitted).resume(at, None)
        places = enumerate(at.located(numbers.tolist()))
        wanted = [Wanted(at.epoch + of_pass, row, which) for which, (of_pass, row) in places]
    over = at.ended and number == at.passes_ended
    if over and source.one_shot:  # read to its end, so that the next epoch finds nothing
        over, number, index = False, number - 1, (at.passes or [(0, 0)])[-1][1]
    following = at.epoch + number + (not over)
    return Located(at, None if over else at.epoch + number, index, following, wanted)
