"""`torch.utils.data.DataLoader` over a map-style dataset: the order of its passes is pyecho's own.

A pass is read through a shallow copy of the loader, whose sampler yields the lists of indices that
are asked for: from any place on, or some of them. So no item is loaded only to be skipped.
"""

from __future__ import annotations

import copy
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pyecho._core import CheckpointError
from pyecho.source.base import Pass
from pyecho.source.iterable import Iterable
from pyecho.source.lists import (
    Lists,
    Loaded,
    StandIn,
    drawn_from,
    generators_in,
    is_known,
    restore,
    states_of,
    torch,
    with_generator,
)
from pyecho.source.sampler_reader import BLOCK, Begun, SamplerReader
from pyecho.source.seen import digest_of_list
from pyecho.source.sniff import state_methods

MOST_BEGINS = 1024
"""Passes whose beginnings are remembered, of generators that the user gave: 5 kB each."""


def owned(given: Any) -> Any:
    """Return the `DataLoader` whose order pyecho may decide: `given`, the one inside, or None.

    It must iterate as PyTorch's own does, over items by index, and have no state of its own.
    """
    data = sys.modules.get("torch.utils.data")
    if data is None:
        return None
    of_timm = type(given).__module__.split(".")[0] == "timm"
    loader = getattr(given, "loader", given) if of_timm else given  # PrefetchLoader
    if not isinstance(loader, data.DataLoader) or type(loader).__iter__ != data.DataLoader.__iter__:
        return None
    if isinstance(loader.dataset, data.IterableDataset) or state_methods(loader) is not None:
        return None
    if not getattr(loader, "in_order", True):  # batches would not come as their lists
        return None
    return loader


class DataLoaderSource(Iterable):
    """A `DataLoader` whose passes can begin at any batch.

    Samplers without a generator get one that is seeded by (base, epoch); draws of other samplers
    from PyTorch's global generator come from such a one, too. The base is drawn from
    PyTorch's global generator, in the consumer's thread, when the first epoch of a run begins, and
    is part of states. A generator that the user gave stays as it is, and its state at the beginning
    of each pass is part of states.
    """

    def __init__(self, given: Any, *, unbatch: bool) -> None:
        super().__init__(given, unbatch=unbatch)
        self._base: int | None = None
        self._begins: dict[int, list[Any]] = {}  # by epoch: states of the user's generators
        self._restored: dict[int, list[Any]] = {}  # of a state, until another pass begins
        self._drawn_to_end = -1  # the epoch of the pass that was last
        self._first_known = 0  # pass of a state, until one of its passes begins
        self._draws = False  # the sampler has drawn from the global generator
        self._first = -1  # of the passes that flow; -1: not told yet
        # States where epochs begin, until one has begun; None: none is beginning.
        self._tried: dict[int, list[Any]] | None = None
        self._copy_loader()
        self._by_index = not unbatch or self._has_lists

    def close(self) -> None:
        """Let go of workers that serve all passes."""
        vars(self._loader)["_iterator"] = None
        self._stand_in.lists = None

    def _copy_loader(self) -> None:
        loader = owned(self.object)
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        self._has_lists = name == "batch_sampler"
        self._sampler = getattr(loader, name)
        self._is_known = is_known(self._sampler)
        self._stand_in = StandIn(self._sampler)
        self._loader = self._iterated = copy.copy(loader)
        vars(self._loader).update({name: self._stand_in, "_iterator": None})
        if loader is not self.object:
            self._iterated = copy.copy(self.object)
            self._iterated.loader = self._loader

    def doubt(self, why: str) -> None:
        """Trust neither the length nor the lists of indices."""
        super().doubt(why)
        self._by_index = not self.batched

    def prepare(self) -> None:
        """Draw the base, once; the pass that is told next is the first of those that flow."""
        self._first, self._tried = -1, self._tried or {}
        self._draw_base()

    def begun(self) -> None:
        """Leave the generators of the user as they are from now on."""
        super().begun()
        self._tried = None

    def _draw_base(self) -> None:
        if self._base is None:  # also if Ctrl-C has come meanwhile
            before = torch().get_rng_state()
            try:
                self._base = drawn_from(None)
            except BaseException:
                torch().set_rng_state(before)
                raise

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader, its samplers and its dataset."""
        self._first = epoch if self._first < 0 else self._first
        super().set_epoch(epoch)

    # ------------------------------------------------------------ passes

    def _open(self, at: int) -> Pass:
        begins: list[int] = []

        def keep(begin: int, end: int) -> bool:
            if not begins and end > at:
                begins.append(begin)
            return end > at or at == 0  # the first list may be empty

        items, lists = self._begin(keep)
        if at > 0:
            lists.look()
        return Pass(items, begins[:1] or [lists.row])

    def holding(self, epoch: int, rows: Sequence[int]) -> Pass | None:
        """Begin a pass that has only the items with these rows."""
        if not self.indexed:
            return None
        if epoch != self.epoch:
            self.set_epoch(epoch)
        begins: list[int] = []

        def keep(begin: int, end: int) -> bool:
            held = bisect_left(rows, begin) < bisect_left(rows, end)
            if held and begin not in begins[-1:]:  # else Ctrl-C has it asked again
                begins.append(begin)
            return held

        return Pass(self._begin(keep)[0], begins)

    def _begin(self, keep: Callable[[int, int], bool]) -> tuple[Iterator[Any], Lists]:
        self._loader.generator = self._seeded(1)  # that seeds the workers
        by_row = self.batched and self._has_lists
        again = self._loader.num_workers == 0  # Ctrl-C may cut loading short, in this thread
        drawn = SamplerReader(partial(self._draw, []))
        lists = Lists(drawn, keep, self._drawn, by_row=by_row, again=again)
        self._stand_in.lists = lists
        items = Loaded(iter(self._iterated), lists, self._stop_counting, batched=self.batched)
        return items, lists

    def _stop_counting(self) -> None:
        """Read from the beginning from now on: a batch has other rows than its list of indices."""
        self._by_index = False

    def _draw(self, begun: list[list[Any]]) -> Begun:
        """Begin the lists of indices of the pass, see `SamplerReader`.

        `begun` gets the generators' states; where it has them, Ctrl-C has cut this short before.
        """
        given = generators_in(self._sampler)
        if not begun:
            tried = (self._tried or {}).get(self.epoch)
            begun.append(self._beginning(given) if tried is None else tried)
        if self._tried is not None:
            self._tried[self.epoch] = begun[0]
        if self.epoch not in self._restored:
            self._restored = {}
        self._first_known, self._drawn_to_end = 0, -1
        self._remember(self.epoch, *begun)
        lists = self._lists_from(given, *begun)
        if self._is_known:
            return lists
        return lists._replace(iterate=lambda: self.seen.watched(lists.iterate(), digest_of_list))

    def _beginning(self, given: list[Any]) -> list[Any]:
        """Return the states of the user's generators where the pass begins."""
        if self._is_behind(self.epoch):
            self._restored = {self.epoch: self._drawn_up_to(self.epoch, given)}
        if self.epoch in self._restored:
            return self._restored[self.epoch]
        if self.epoch < self._first_known:
            raise CheckpointError(
                f"items of epoch {self.epoch} are to be read again, and the state knows the "
                f"generator of the DataLoader only from epoch {self._first_known} on; use "
                "state_dict(payload=True)"
            )
        return states_of(given)

    def _drawn_up_to(self, epoch: int, given: list[Any]) -> list[Any]:
        """Draw the orders of passes that are skipped; return the states after them."""
        latest = max(self._restored)
        skipped, states = epoch - max(latest, self._first - 1), self._restored[latest]
        if skipped > MOST_BEGINS:
            raise CheckpointError(
                f"{skipped} passes are to be skipped, and only drawing the order of each shows how "
                f"the DataLoader's generator goes on; at most {MOST_BEGINS} are drawn: use "
                "state_dict() instead of skip_first_batches(), or leave out generator="
            )
        for _ in range(skipped):
            lists = SamplerReader(partial(self._lists_from, given, states))
            place = 0
            while block := lists(place, BLOCK):
                place += len(block)
            states = states_of(given)
        return states

    def _is_behind(self, epoch: int) -> bool:
        """Return True if passes before it are skipped, of which no end was drawn."""
        latest = max(self._restored, default=epoch)
        return latest < epoch and latest != self._drawn_to_end

    def _lists_from(self, given: list[Any], states: list[Any]) -> Begun:
        """Begin the lists of indices of a pass that begins with these states."""
        if len(states) != len(given):
            raise CheckpointError(
                f"the state has {len(states)} generators of the DataLoader's samplers, which have "
                f"{len(given)}"
            )
        for generator, state in zip(given, states, strict=True):
            restore(generator, state)
        sampler = with_generator(self._sampler, self._seeded(0))
        if (generator := owned(self.object).generator) is not None:
            drawn_from(generator)  # with which a DataLoader seeds its workers
        if self._is_known:
            return Begun(partial(iter, sampler))
        from pyecho.torch.random import SeededTorch

        return Begun(partial(iter, sampler), SeededTorch(self._seed_of_draws).call)

    def _has_draws(self) -> bool:
        """Return True if a sampler draws from PyTorch's global generator as it is."""
        return with_generator(self._sampler, None) is not self._sampler

    def _seed_of_draws(self) -> int:
        """Return the seed for what a sampler draws from the global generator, in this thread."""
        self._draws = True
        return int(self._seeded(0).initial_seed())

    def _drawn(self) -> None:
        """Remember where the next pass begins."""
        self._drawn_to_end = self.epoch
        self._remember(self.epoch + 1, states_of(generators_in(self._sampler)))

    def _remember(self, epoch: int, begin: list[Any]) -> None:
        if begin:
            self._begins = {**self._begins, epoch: begin}
            self._begins = dict(sorted(self._begins.items())[-MOST_BEGINS:])

    def _seeded(self, which: int) -> Any:
        assert self._base is not None
        [seed] = np.random.SeedSequence([self._base, self.epoch, which]).generate_state(1, "u8")
        return torch().Generator().manual_seed(int(seed) >> 1)

    # ------------------------------------------------------------ states

    def order(self, following: int | None) -> dict[str, Any] | None:
        """Return what decides the order of passes."""
        given = generators_in(self._sampler)
        is_drawn = self._has_draws() or self._draws or not self._is_known
        begins = self._begins
        known = {**self._restored, **(self._tried or {})}
        if following in known or (following is not None and self._is_behind(following)):
            following = None  # known by the state, by a beginning, or by the pass before it
        if following is not None and given:
            begins = {**begins, following: states_of(given)}
        listed = [[epoch, list(begin)] for epoch, begin in begins.items()]
        if is_drawn:
            self._draw_base()
        base, counted = self._base if is_drawn else None, self._by_index
        if base is None and not listed and counted:
            return None
        return {"base": base, "begins": listed, "counted": counted}

    def set_order(self, order: dict[str, Any] | None) -> None:
        """Have passes be in the order of a state."""
        known = order or {"base": None, "begins": [], "counted": True}
        here = self._has_draws() or not self._is_known, bool(generators_in(self._sampler))
        there = known["base"] is not None, bool(known["begins"])
        if here != there:
            raise CheckpointError(
                f"the state is of a DataLoader whose order {_WAYS[there]}, and the order of this "
                f"one ({type(self._sampler).__name__}) {_WAYS[here]}; make the DataLoader with the "
                "shuffle=, sampler= and generator= of the run that was saved"
            )
        self._base = known["base"]
        self._by_index = self._by_index and known["counted"]
        self._begins = {
            epoch: [torch().from_numpy(each.copy()) for each in begin]
            for epoch, begin in known["begins"]
        }
        self._restored, self._drawn_to_end = self._begins, -1
        self._draws = self._base is not None
        self._tried = None
        self._first_known = min(self._begins, default=0)

    def __getstate__(self) -> dict[str, Any]:
        """Have a copy with passes and an order of its own."""
        made = ("_sampler", "_stand_in", "_loader", "_iterated")
        state = {key: value for key, value in super().__getstate__().items() if key not in made}
        fresh: dict[str, Any] = {"_base": None, "_begins": {}, "_restored": {}}
        return state | fresh | {"_drawn_to_end": -1, "_first_known": 0, "_draws": False}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copy the loader anew."""
        self.__dict__.update(state)
        self._copy_loader()


_WAYS = {
    (False, False): "is always the same",
    (True, False): "is random, or a sampler's of your own",
    (False, True): "comes from a generator=",
    (True, True): "comes from a sampler of your own with a generator",
}
