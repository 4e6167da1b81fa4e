"""Arrow tables as sources, against lists of their rows and against bare memcpy of the same bytes.

    python benchmarks/arrow.py [--rounds N] [--factor E]

Needs pyarrow. The contestants take turns in each round; shown are medians and quartiles over the
rounds. Bare memcpy copies each row once into a pool and each use once out of it, in one thread, in
random order. A table in memory is read in the consumer's thread, so pyecho has one thread as well.
Beside it stands the same loader over NumPy arrays of the same values. Epochs are those of a loader
that has its memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa

import pyecho
from pyecho import _core

BATCH_SIZE = 256
SOURCE_BYTES = 128 << 20


def lists(rows: int, size: int) -> pa.Table:
    """Return images and labels."""
    random = np.random.default_rng(0)
    values = pa.array(random.integers(0, 256, rows * size, np.uint8))
    images = pa.FixedSizeListArray.from_arrays(values, size)
    return pa.table({"image": images, "label": random.integers(0, 10, rows)})


def numbers(rows: int, columns: int) -> pa.Table:
    """Return columns of integers."""
    random = np.random.default_rng(0)
    return pa.table({f"c{k}": random.integers(0, 1 << 40, rows) for k in range(columns)})


def mixed(rows: int) -> pa.Table:
    """Return integers, floats, strings and strings with nulls."""
    random = np.random.default_rng(0)
    floats = {f"f{k}": random.random(rows, np.float32) for k in range(3)}
    texts = {
        "name": [f"sample number {k}" for k in range(rows)],
        "kind": [("cat", "dog", None)[k % 3] for k in range(rows)],
    }
    return pa.table({f"i{k}": random.integers(0, 1 << 40, rows) for k in range(3)} | floats | texts)


def epochs(source: object, factor: int, capacity: int) -> Callable[[], float]:
    """Return what runs an epoch of one loader, and returns its seconds."""
    loader = pyecho.EchoLoader(source, factor, batch_size=BATCH_SIZE, shuffle_buffer=capacity)

    def epoch() -> float:
        begin = time.perf_counter()
        for batch in loader:
            del batch
        return time.perf_counter() - begin

    return epoch


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def show(values: Iterable[float], digits: int = 2) -> str:
    """Return the median, and the quartiles in brackets."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def race(contestants: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Let all of them run in turn, once to warm up."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, run in contestants.items():
            seconds = run()
            if number:
                times[name].append(seconds)
    return times


def against_lists(name: str, table: pa.Table, factor: int, rounds: int) -> None:
    """Compare with `EchoLoader(table.to_pylist())`, with and without the making of the list."""
    rows = table.to_pylist()
    times = race(
        {
            "arrow": epochs(table, factor, 4096),
            "list": epochs(rows, factor, 4096),
            "to_pylist": lambda: timed(table.to_pylist),
        },
        rounds,
    )
    pairs = list(zip(*times.values(), strict=True))
    uses = table.num_rows * factor / 1e9
    print(
        f"{name}: {show((a / uses for a, _, _ in pairs), 0)} ns a use; "
        f"{show(((r + made) / a for a, r, made in pairs), 1)} times as fast as "
        f"EchoLoader(table.to_pylist()), {show((r / a for a, r, _ in pairs), 1)} times without "
        "the making of the list",
        flush=True,
    )


def against_memcpy(name: str, table: pa.Table, factor: int, rounds: int, capacity: int) -> None:
    """Compare with bare memcpy in one thread."""
    arrays = tuple(
        np.vstack(column.chunk(0).to_numpy(zero_copy_only=False))
        if pa.types.is_fixed_size_list(column.type)
        else column.to_numpy()
        for column in table.columns
    )
    row_bytes = table.nbytes // table.num_rows
    bare = _core.GatherRace(
        row_bytes=row_bytes,
        batch_size=BATCH_SIZE,
        capacity=capacity,
        factor=factor,
        fresh=table.num_rows,
        threads=0,
    )
    times = race(
        {
            "arrow": epochs(table, factor, capacity),
            "arrays": epochs(arrays, factor, capacity),
            "memcpy": lambda: bare.memcpy_seconds(1),
        },
        rounds,
    )
    pairs = list(zip(*times.values(), strict=True))
    uses = table.num_rows * factor / 1e9
    print(
        f"{name}, {row_bytes} B a row: {show((a / uses for a, *_ in pairs), 0)} ns a use, memcpy "
        f"{show((m / uses for *_, m in pairs), 0)}; {show(m / a for a, _, m in pairs)} of memcpy; "
        f"arrays {show(m / n for _, n, m in pairs)}",
        flush=True,
    )


def main() -> None:
    """Run all races."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--factor", type=int, default=4)
    arguments = parser.parse_args()
    factor, rounds = arguments.factor, arguments.rounds
    for each in sorted({1, factor}):
        for size, capacity in ((256, 4096), (3072, 4096), (150_528, 256)):
            table = lists(SOURCE_BYTES // size, size)
            against_memcpy(f"lists, e = {each}", table, each, rounds, capacity)
        against_memcpy(f"8 columns, e = {each}", numbers(1_000_000, 8), each, rounds, 4096)
        against_lists(f"8 columns with strings, e = {each}", mixed(100_000), each, rounds)
        against_lists(f"8 columns of int64, e = {each}", numbers(200_000, 8), each, rounds)
        against_lists(f"lists of 256 B, e = {each}", lists(4000, 256), each, rounds)


if __name__ == "__main__":
    main()
