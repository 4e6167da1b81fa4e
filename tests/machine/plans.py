"""A run of a loader: a source, its options, and the batches of each iteration."""

from __future__ import annotations

from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np
import reference_model as model
import torch
from delays import dawdling
from drivers import Iterated
from hypothesis import strategies as st
from kinds import KINDS, numbers_in
from resuming import examples

import pyecho.torch

LAST = 5
"""Number of the last iteration."""
SEED_OF_ORDER, OTHER_SEED = 3, 99
"""Of torch: the first one decides the order of a DataLoader, once for a run."""


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    """Add a number of the use's own."""
    return batch, int(rng.integers(1000))


def plain(emission: Any, plan: Plan) -> Any:
    """Return what was emitted: the examples, their numbers in the pass, their uses, the noise."""
    batch, info = emission
    noise = None
    if plan.augmented:
        batch, noise = batch
    return numbers_in(batch), info.source_index.tolist(), info.use.tolist(), noise


class Late(Iterated):
    """Some items come late, so that an adaptive factor repeats others."""

    def __iter__(self) -> Any:
        return dawdling(self.items, len(self.items), 5e-4)


class Driver(NamedTuple):
    """Options that change nothing in the output."""

    threads: int | None = None
    prefetch: int = 2
    augment_workers: int = 0


drivers = st.builds(
    Driver,
    st.sampled_from([None, 0, 1, 3]),
    st.sampled_from([2, 1, 7]),
    st.sampled_from([0, 1, 3]),
)


class Plan:
    """A source and the options that decide the output.

    Attributes
    ----------
    known_iterations
        By the epoch in which a flow began: what each of its iterations yields without any stop.
    """

    def __init__(
        self, kind: str, items: int, *, augmented: bool, of_torch: bool, **options: Any
    ) -> None:
        self.name, self.items, self.options = kind, items, options
        self.kind = KINDS[kind]
        self.augmented, self.of_torch = augmented, of_torch
        self.known_iterations: dict[int, list[Any]] = {}
        if self.adaptive:
            self._replay()

    def __repr__(self) -> str:
        marks = f"augmented={self.augmented}, of_torch={self.of_torch}"
        return f"{self.name}, {self.items} items, {self.options}, {marks}"

    @property
    def adaptive(self) -> bool:
        return isinstance(self.options["factor"], pyecho.Adaptive)

    @property
    def flows(self) -> bool:
        return self.options["epochs"] is not None or self.options["steps_per_epoch"] is not None

    @property
    def iterations(self) -> int:
        return 1 if self.kind.one_shot else LAST + 1

    def loader(self, driver: Driver, source: Any = None) -> Any:
        options = self.options | driver._asdict() | self.kind.options
        if self.augmented:
            options["augment"] = noisy
        else:
            del options["augment_workers"]
        loader = pyecho.torch.EchoLoader if self.of_torch else pyecho.EchoLoader
        source = self.kind.make(self.items) if source is None else source
        return loader(source, unbatch=self.kind.cut, with_info=True, **options)

    def flow_of(self, flow: int, number: int) -> int:
        """Return the epoch in which the flow of iteration `number` begins, if one was under way."""
        if not self.kind.jumps:
            return 0
        if self.options["steps_per_epoch"] is not None:
            return flow
        return flow if number < max(flow + 1, self.options["epochs"] or 0) else number

    def iteration(self, flow: int, number: int) -> list[Any]:
        """Return what this iteration yields, and check that against the model."""
        if flow not in self.known_iterations:
            made = self._uninterrupted(self.loader(Driver(threads=0)), flow)
            for place, emissions in enumerate(self._modelled(flow, len(made))):
                uses = [tuple(map(list, zip(*batch, strict=True))) for batch in emissions]
                assert [(index, use) for _, index, use, _ in made[place]] == uses
                if self.kind.same:
                    assert [numbers for numbers, *_ in made[place]] == [each for each, _ in uses]
            self.known_iterations[flow] = made
        return self.known_iterations[flow][number - flow]

    def _uninterrupted(self, loader: Any, flow: int) -> list[Any]:
        with loader:
            torch.manual_seed(SEED_OF_ORDER)
            loader.set_epoch(flow)
            count = 1
            while count <= LAST - flow and self.flow_of(flow, flow + count) == flow:
                count += 1
            return [
                [plain(each, self) for each in loader] for _ in range(min(count, self.iterations))
            ]

    def _modelled(self, flow: int, count: int) -> Any:
        """Return the batches of each iteration that the model says, none where it cannot."""
        options = self.options
        if self.adaptive or not (self.kind.same or self.kind.jumps):
            return []
        steps, rows = options["steps_per_epoch"], options["batch_size"] or 1
        passes: Any = [self.items] * max(1, (options["epochs"] or 0) - flow)
        if self.kind.one_shot:
            passes = [self.items]
        elif steps is not None:
            passes = repeat(self.items)
        plan = {name: options[name] for name in ("factor", "seed", "unique_in_batch", "drop_last")}
        if steps is None and (options["shards"] is not None or options["pad_last"]):
            plan["uses"] = model.uses_of_longest(
                self.items,
                options["factor"],
                streams=options["shards"] or 1,
                batch_size=rows,
                pad_last=options["pad_last"],
            )
        capacity = options["shuffle_buffer"]
        plan |= {"capacity": capacity, "batch_size": rows, "known": self.kind.known}
        plan |= {"shards": options["shards"], "steps": steps, "epoch": flow}
        return islice(model.iterations(passes, **plan), count)

    def _replay(self) -> None:
        """Have the factor decide as it did once, over a source that is late, in every flow."""
        key = repr(self)  # hypothesis needs the same decisions each time
        if key not in _LOGS:
            _LOGS[key] = self._decided()
        self.options["factor"] = self.options["factor"].replay(_LOGS[key])

    def _decided(self) -> dict[int, Any]:
        kind, log = self.kind, {}
        late = kind.same and not kind.cut and not kind.options
        alone = kind.one_shot or not (kind.jumps and self.flows)
        for flow in range(1 if alone else LAST + 1):
            source: Any = Late(examples(self.items)) if late else None
            source = iter(source) if late and kind.one_shot else source
            with self.loader(Driver(threads=1), source) as loader:
                loader.set_epoch(flow)
                torch.manual_seed(SEED_OF_ORDER)
                for _ in range(self.iterations + 1):
                    for _ in loader:
                        pass
                log = loader.stats().log | log
        return log


_LOGS: dict[str, dict[int, Any]] = {}


@st.composite
def plans(draw: Any) -> Plan:
    """Draw a plan. The first of each choice is the simplest."""
    name = draw(st.sampled_from(list(KINDS)))
    kind = KINDS[name]
    batch_size = draw(st.integers(1, 6))
    if not kind.examples_only and draw(st.booleans()):
        batch_size = None
    rows = batch_size or 1
    epochs = draw(st.sampled_from([None, None, 2, 3]))
    steps = None if epochs else draw(st.sampled_from([None, None, 1, 4, 7]))
    options: dict[str, Any] = {
        "factor": draw(st.sampled_from([1, 2, 3, 1.3, 2.5, "adaptive"])),
        "batch_size": batch_size,
        "shuffle_buffer": draw(st.integers(0, 20)),
        "unique_in_batch": batch_size is not None and draw(st.booleans()),
        "drop_last": batch_size is not None and draw(st.booleans()),
        "pad_last": False,
        "seed": draw(st.integers(0, 3)),
        "epochs": epochs,
        "steps_per_epoch": steps,
        "shards": None,
    }
    items = draw(st.integers(1, 30))
    if options["factor"] == "adaptive":
        least = draw(st.integers(1, 2))
        age = draw(st.sampled_from([None, 2, 9]))
        options["factor"] = pyecho.Adaptive(least + draw(st.integers(0, 5)), least, max_age=age)
        options["shuffle_buffer"] = max(options["shuffle_buffer"], rows)
    elif kind.known and draw(st.booleans()):
        if steps is None:
            options["unique_in_batch"] = False
        shards = options["shards"] = draw(st.sampled_from([None, 1, 2, 3]))
        if shards is not None:
            items = -(-items // shards) * shards  # as many in each stream
            least = rows if options["unique_in_batch"] else 1
            options["shuffle_buffer"] = max(options["shuffle_buffer"], shards * least)
            options["steps_per_epoch"] = steps and steps * shards
        if batch_size is not None and epochs is None and draw(st.booleans()):
            options |= {"pad_last": True, "drop_last": False}
    if options["unique_in_batch"]:
        options["shuffle_buffer"] = max(options["shuffle_buffer"], rows)
    augmented, of_torch = draw(st.booleans()), draw(st.booleans())
    return Plan(name, items, augmented=augmented, of_torch=of_torch, **options)
