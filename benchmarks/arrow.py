"""Arrow tables as sources, against lists of their rows and against bare memcpy of the same bytes.

Needs pyarrow. Bare memcpy copies each row once into a pool and each use once out of it, in one
thread, in random order. A table in memory is read in the consumer's thread, so pyecho has one
thread as well. Beside it stands the same loader over NumPy arrays of the same values. Epochs are
those of a loader that has its memory. Numbers are those of a use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
from common.command import add_rounds, finish, new_parser, new_report

import pyecho
from pyecho.bench import _races
from pyecho.bench.row import Row
from pyecho.bench.sampling import Sample, interleaved, seconds_of, seconds_to_drain
from pyecho.tools.arguments import positive_int

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


class Race:
    """A table, as a source of one factor, in turns with others."""

    def __init__(self, name: str, table: pa.Table, factor: int, capacity: int = 4096) -> None:
        self._name = f"{name}, e = {factor}"
        self._table = table
        self._factor = factor
        self._capacity = capacity

    def _epochs(self, source: object) -> Callable[[], float]:
        loader = pyecho.EchoLoader(
            source, self._factor, batch_size=BATCH_SIZE, shuffle_buffer=self._capacity
        )
        return partial(seconds_to_drain, loader)

    def _ns(self, rounds: int, others: dict[str, Callable[[], float]]) -> dict[str, Sample]:
        contestants = {"arrow": self._epochs(self._table), **others}
        seconds = interleaved(self._name, rounds, contestants)
        uses = self._table.num_rows * self._factor
        return {name: sample.times(1e9 / uses) for name, sample in seconds.items()}

    def against_lists(self, rounds: int) -> list[Row]:
        """Compare with `EchoLoader(table.to_pylist())`, without and with the making of the list."""
        rows = self._table.to_pylist()
        making = partial(seconds_of, self._table.to_pylist)
        ns = self._ns(rounds, {"list": self._epochs(rows), "making": making})
        arrow, listed = ns["arrow"], ns["list"]
        made = listed + ns["making"]
        return [
            Row(self._name, arrow, "ns", listed, "a list of its rows", listed / arrow),
            Row(self._name, arrow, "ns", made, "its to_pylist()", made / arrow),
        ]

    def against_memcpy(self, rounds: int) -> list[Row]:
        """Compare with bare memcpy in one thread, and with arrays."""
        table = self._table
        arrays = tuple(
            np.vstack(column.chunk(0).to_numpy(zero_copy_only=False))
            if pa.types.is_fixed_size_list(column.type)
            else column.to_numpy()
            for column in table.columns
        )
        bare = _races.GatherRace(
            row_bytes=table.nbytes // table.num_rows,
            batch_size=BATCH_SIZE,
            shuffle_buffer=self._capacity,
            factor=self._factor,
            fresh=table.num_rows,
            threads=0,
        )
        others: dict[str, Callable[[], float]] = {
            "arrays": self._epochs(arrays),
            "memcpy": partial(bare.memcpy_seconds, 1),
        }
        ns = self._ns(rounds, others)
        arrow, memcpy = ns["arrow"], ns["memcpy"]
        return [
            Row(self._name, arrow, "ns", memcpy, "memcpy, 1 thread", memcpy / arrow),
            Row(self._name, arrow, "ns", ns["arrays"], "NumPy arrays", ns["arrays"] / arrow),
        ]


def main() -> None:
    """Run all races."""
    parser = new_parser("arrow.py", __doc__)
    add_rounds(parser, 9)
    parser.add_argument("--factor", type=positive_int, default=4, help="default: %(default)s")
    options = parser.parse_args()
    report = new_report("arrow", "Arrow tables", options)
    report.note("ratios are speeds: above 1, pyecho with the table is faster")
    share = 64 if options.quick else 1
    images = {size: lists(SOURCE_BYTES // share // size, size) for size in (256, 3072, 150_528)}
    columns, more_columns = numbers(200_000 // share, 8), numbers(1_000_000 // share, 8)
    strings, few_images = mixed(100_000 // share), lists(4000, 256)
    for factor in sorted({1, options.factor}):
        races = [
            Race(f"lists of {size:,} B", table, factor, 256 if size > 100_000 else 4096)
            for size, table in images.items()
        ]
        for race in (*races, Race("8 columns of int64", more_columns, factor)):
            report.add("Against memcpy", race.against_memcpy(options.rounds))
        for name, table in (
            ("8 columns with strings", strings),
            ("8 columns of int64", columns),
            ("lists of 256 B", few_images),
        ):
            race = Race(name, table, factor)
            report.add("Against lists", race.against_lists(options.rounds))
    finish(report, options)


if __name__ == "__main__":
    main()
