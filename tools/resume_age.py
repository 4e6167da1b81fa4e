"""Print the seconds of a resume after 1e6, 1e8 and 1e10 uses, and just before a joint.

    python tools/resume_age.py

The time is from `load_state_dict` to the first batch, with the payload and without. Positions are
moved on to that age, where a run would take days; with an adaptive factor a run makes 1e8 uses.
"""

from __future__ import annotations

import time
from itertools import chain, repeat
from typing import Any

import numpy as np

import pyecho
from pyecho.state.loaded import digest

SEGMENT = 2**24  # uses, see csrc/core/plan/segments.hpp
AGES = (10**6, 10**8, 10**10, 16 * SEGMENT - 10**5)
ADAPTIVE_AGES = (10**6, 10**7, 10**8)
DEFAULTS = {"batch_size": 100, "shuffle_buffer": 1000}
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "steps": (10_000, {"factor": 2.5, "steps_per_epoch": 1000}),
    "epochs": (10_000, {"factor": 2.5, "epochs": 10**9}),
    "long passes": (10**9 // 2, {"factor": 2, "epochs": 100}),
    "pool of 1e6": (10**7, {"factor": 2, "epochs": 10**6, "shuffle_buffer": 10**6}),
    "12 shards": (
        12_000,
        {"factor": 2.5, "epochs": 10**9, "shards": 12, "batch_size": 120, "shuffle_buffer": 1200},
    ),
}


def aged(state: dict[str, Any], uses: int, batch_size: int, per_epoch: int) -> dict[str, Any]:
    """Return the state of a run that has taken so many uses."""
    epoch, batch = divmod(uses // batch_size, per_epoch)
    taken = {"iterations": epoch, "batches": batch, "delivered": batch}
    moved = state | {"epoch": epoch, "position": state["position"] | taken}
    return moved | {"digest": digest(moved)}


def first(
    items: int, options: dict[str, Any], state: dict[str, Any] | None
) -> tuple[pyecho.EchoLoader, float]:
    """Return a loader that has made the first batch after a state, and the seconds of that."""
    loader = pyecho.EchoLoader(np.arange(items), **options)
    began = time.perf_counter()
    if state is not None:
        loader.load_state_dict(state)
    next(iter(loader))
    return loader, time.perf_counter() - began


def measure(items: int, uses: int, options: dict[str, Any]) -> tuple[float, float]:
    """Return the seconds of a resume with the payload, and without."""
    options = DEFAULTS | options
    young, _ = first(items, options, None)
    per_epoch = options.get("steps_per_epoch") or round(
        items * options["factor"] / options["batch_size"]
    )
    state = aged(young.state_dict(payload=False), uses, options["batch_size"], per_epoch)
    loader, without = first(items, options, state)
    _, seconds = first(items, options, loader.state_dict())
    return seconds, without


def measure_adaptive(items: int, options: dict[str, Any]) -> None:
    """Print the seconds of resumes, and the size of the log in a state, as a run grows old."""
    options = DEFAULTS | {"factor": pyecho.Adaptive(8), "steps_per_epoch": 997} | options
    loader = pyecho.EchoLoader(np.arange(items), **options)
    uses, ages = 0, list(ADAPTIVE_AGES)
    for batch in chain.from_iterable(repeat(loader)):
        uses += len(batch)
        if uses >= ages[0]:
            states = [loader.state_dict(payload=payload) for payload in (True, False)]
            one, two = (first(items, options, state)[1] for state in states)
            log_kb = states[0]["position"]["decisions"].nbytes / 1000
            print(f"{ages.pop(0):9.0e}{one:9.2f}; {two:5.2f}; log of {log_kb:.0f} kB", flush=True)
        if not ages:
            return


def main() -> None:
    """Print a table."""
    print(f"{'':12}" + "".join(f"{uses:16.2e}" for uses in AGES))
    for name, (items, options) in RUNS.items():
        found = [measure(items, uses, options) for uses in AGES]
        print(f"{name:12}" + "".join(f"{one:9.2f}; {two:5.2f}" for one, two in found), flush=True)
    print("adaptive")
    measure_adaptive(10**5, {})
    print("adaptive, at least 8 uses, pool of 1e6")
    least = pyecho.Adaptive(8, min=8)
    measure_adaptive(10**7, {"factor": least, "batch_size": 1000, "shuffle_buffer": 10**6})


if __name__ == "__main__":
    main()
