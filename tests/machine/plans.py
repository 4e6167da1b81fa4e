"""A run of a loader: a source, its options, and the batches of each iteration."""

from __future__ import annotations

from itertools import count, cycle, islice
from typing import Any, NamedTuple

import numpy as np
import reference_model as model
import torch
from hypothesis import strategies as st
from kinds import KINDS, draws_in, numbers_in
from reference_rounds import Arrivals, Rounds, adaptive_iterations
from segments import segments_of

import pyecho.torch

LAST = 5
"""Number of the last iteration."""
SEED_OF_ORDER, OTHER_SEED = 3, 99
"""Of torch: the first one decides the order of a DataLoader, once for a run."""
DEFAULTS: dict[str, Any] = {
    "factor": 1,
    "batch_size": None,
    "shuffle_buffer": 0,
    "unique_in_batch": False,
    "drop_last": False,
    "pad_last": False,
    "seed": 0,
    "epochs": None,
    "steps_per_epoch": None,
    "shards": None,
}


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    """Add a number of the use's own."""
    return batch, int(rng.integers(1000))


LINKS: dict[str, dict[str, Any]] = {
    "": {},
    "augment": {"augment": noisy},
    "collate": {"collate_fn": list},
    "both": {"augment": noisy, "collate_fn": list},
}


def plain(emission: Any) -> Any:
    """Return what was emitted: the numbers of the examples, those in the pass, the uses, draws."""
    batch, info = emission
    noise = None
    if isinstance(batch, tuple) and isinstance(batch[1], int):
        batch, noise = batch
    drawn = draws_in(batch), noise
    return numbers_in(batch), info.source_index.tolist(), info.use.tolist(), drawn


class Driver(NamedTuple):
    """Options that change nothing in the output."""

    threads: int | None = None
    prefetch: int = 2
    augment_workers: int = 0
    workers: str | None = None


drivers = st.builds(
    Driver,
    st.sampled_from([None, 0, 1, 3]),
    st.sampled_from([2, 1, 7]),
    st.sampled_from([0, 1, 3]),
    st.sampled_from([None, None, None, "thread", "process"]),
)


class Plan:
    """A source and the options that decide the output.

    Parameters
    ----------
    arrivals
        Items that come before each batch, over and over. Their decisions are what an adaptive
        factor has to replay.
    links
        Key of `LINKS`.
    segment_uses
        See `segments_of`.

    Attributes
    ----------
    known_iterations
        By the epoch in which a flow began: what each of its iterations yields without any stop.
    """

    def __init__(
        self,
        kind: str,
        items: int,
        *,
        links: str = "",
        of_torch: bool = False,
        segment_uses: int | None = None,
        arrivals: tuple[int, ...] = (),
        **options: Any,
    ) -> None:
        self.name, self.items, self.given = kind, items, options
        self.kind, self.options = KINDS[kind], DEFAULTS | options
        self.links, self.of_torch, self.arrivals = links, of_torch, arrivals
        self.segment_uses = segment_uses
        self.known_iterations: dict[int, list[Any]] = {}
        if self.adaptive:
            self.log: dict[int, list[int]] = {}
            for flow in range(LAST + 1):
                list(islice(self._flow(flow), LAST + 2))
            self.options["factor"] = self.options["factor"].replay(self.log)

    def __repr__(self) -> str:
        more = {name: value for name, value in self.given.items() if value != DEFAULTS[name]}
        for name in ("arrivals", "links", "of_torch", "segment_uses"):
            if getattr(self, name):
                more[name] = getattr(self, name)
        shown = [repr(self.name), str(self.items), *(f"{key}={more[key]!r}" for key in more)]
        return f"Plan({', '.join(shown)})"

    @property
    def adaptive(self) -> bool:
        return isinstance(self.options["factor"], pyecho.Adaptive)

    @property
    def saves_tensors(self) -> bool:
        """True if its states hold nothing but tensors and plain data."""
        return self.of_torch and self.kind.plain_states

    @property
    def batches_are_its_own(self) -> bool:
        """True if its consumer may change batches."""
        return self.options["batch_size"] is not None and "collate_fn" not in LINKS[self.links]

    @property
    def iterations(self) -> int:
        return 1 if self.kind.one_shot else LAST + 1

    def loader(self, driver: Driver) -> Any:
        options = self.options | self.kind.options | LINKS[self.links]
        options |= {"threads": driver.threads, "prefetch": driver.prefetch}
        if self.links:
            options["augment_workers"] = driver.augment_workers
        if driver.workers is not None and self.kind.indexed:
            options |= {"num_workers": 2, "workers": driver.workers}
        loader = pyecho.torch.EchoLoader if self.of_torch else pyecho.EchoLoader
        with segments_of(self.segment_uses):
            source = self.kind.make(self.items)
            return loader(source, **{"unbatch": self.kind.cut, "with_info": True} | options)

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
            for found, emissions in zip(made, self._modelled(flow), strict=False):
                expected = [tuple(map(list, zip(*batch, strict=True))) for batch in emissions]
                assert [(index, use) for _, index, use, _ in found] == expected
                if self.kind.same:
                    assert [numbers for numbers, *_ in found] == [each for each, _ in expected]
            self.known_iterations[flow] = made
        return self.known_iterations[flow][number - flow]

    def _uninterrupted(self, loader: Any, flow: int) -> list[Any]:
        with loader:
            torch.manual_seed(SEED_OF_ORDER)
            loader.set_epoch(flow)
            following = flow + 1
            while following <= LAST and self.flow_of(flow, following) == flow:
                following += 1
            numbers = range(flow, min(following, self.iterations))
            return [[plain(each) for each in loader] for _ in numbers]

    # ------------------------------------------------------------ what the model says

    def _modelled(self, flow: int) -> Any:
        """Yield the batches of each iteration, of one flow after the other."""
        while True:
            made = list(islice(self._flow(flow), LAST + 1))
            yield from made
            flow += len(made)

    def _flow(self, flow: int) -> Any:
        """Yield the batches of each iteration of a flow."""
        options, steps = self.options, self.options["steps_per_epoch"]
        passes: Any = range(flow, max(flow + 1, options["epochs"] or 0))
        if self.kind.one_shot:
            passes = [flow]
        most = len(passes) if steps is None else None
        if steps is not None and not self.kind.one_shot:
            passes = count(flow)
        lengths = (self.kind.rows(self.items, number) for number in passes)
        if self.adaptive:
            return islice(self._adaptive(lengths, flow), most)
        rows = options["batch_size"] or 1
        plan = {name: options[name] for name in ("factor", "seed", "unique_in_batch", "drop_last")}
        if steps is None and (options["shards"] is not None or options["pad_last"]):
            plan["uses"] = model.uses_of_longest(
                self.kind.rows(self.items, flow),
                options["factor"],
                streams=options["shards"] or 1,
                batch_size=rows,
                pad_last=options["pad_last"],
            )
        plan |= {"capacity": options["shuffle_buffer"], "batch_size": rows}
        plan |= {"known": self.kind.known, "segment_uses": self.segment_uses}
        plan |= {"shards": options["shards"], "steps": steps, "epoch": flow}
        return islice(model.iterations(lengths, **plan), most)

    def _adaptive(self, lengths: Any, flow: int) -> Any:
        options, factor = self.options, self.options["factor"]
        rows = options["batch_size"] or 1
        pool = Rounds(
            capacity=max(1, options["shuffle_buffer"]),
            rows=rows,
            most=factor.max,
            least=factor.min,
            age=factor.max_age,
            unique=options["unique_in_batch"],
        )
        arrivals = Arrivals(lengths, cycle(self.arrivals), pool)
        self.log[flow] = arrivals.log
        return adaptive_iterations(
            arrivals,
            batch_size=rows,
            drop_last=options["drop_last"],
            seed=options["seed"],
            epoch=flow,
            steps=options["steps_per_epoch"],
        )


@st.composite
def plans(draw: Any) -> Plan:
    """Draw a plan. The first of each choice is the simplest."""
    name = draw(st.sampled_from(list(KINDS)))
    kind = KINDS[name]
    batch_size = draw(st.integers(1, 6))
    if kind.batches_only or (not kind.examples_only and draw(st.booleans())):
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
        "seed": draw(st.sampled_from([0, 1, 2**64 - 1])),
        "epochs": epochs,
        "steps_per_epoch": steps,
        "segment_uses": draw(st.sampled_from([None, None, 1, 30])),
    }
    items = draw(st.integers(1, 30))
    if options["factor"] == "adaptive":
        least = draw(st.integers(1, 3))
        age = draw(st.sampled_from([None, 2, 9]))
        options["factor"] = pyecho.Adaptive(least + draw(st.integers(0, 5)), least, max_age=age)
        options["shuffle_buffer"] = max(options["shuffle_buffer"], rows)
        options["segment_uses"] = None
        options["arrivals"] = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    elif kind.known and not kind.batches_only and draw(st.booleans()):
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
    links = ["", "augment"]
    if batch_size is not None and not (kind.cut or kind.options):
        links += ["collate", "both"]
    return Plan(
        name, items, links=draw(st.sampled_from(links)), of_torch=draw(st.booleans()), **options
    )
