"""Arrow files that were changed anywhere: refused, or read as they are, and nothing beside them.

In a process of its own, which a fault would end. As many as hypothesis's profile says.
"""

import functools
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

ROWS = 24
COLUMNS = {
    "numbers": [pa.array(np.arange(ROWS)), pa.array(np.arange(ROWS) % 3 == 0)],
    "texts": [
        pa.array([f"text {row}" for row in range(ROWS)]),
        pa.array([b"x" * row for row in range(ROWS)]),
    ],
    "views": [pa.array([f"a text of some length {row}" for row in range(ROWS)], pa.string_view())],
    "lists": [pa.array([[row] * (row % 4) for row in range(ROWS)])],
    "large lists": [
        pa.array([[row] * (row % 4) for row in range(ROWS)], pa.large_list(pa.int16()))
    ],
    "fixed": [
        pa.array([[row, row] for row in range(ROWS)], pa.list_(pa.float32(), 2)),
        pa.array([b"abc"] * ROWS, pa.binary(3)),
    ],
    "dictionary": [pa.array([f"text {row % 3}" for row in range(ROWS)]).dictionary_encode()],
    "nested": [pa.array([{"a": row, "b": {"c": f"{row}"}} for row in range(ROWS)])],
    "times": [
        pa.array(np.arange(ROWS), pa.timestamp("us")),
        pa.array(np.arange(ROWS), pa.date64()),
    ],
    "nulls": [pa.array([None, "a"] * (ROWS // 2)), pa.nulls(ROWS)],
}


@functools.cache
def file_of(name, stream):
    """An Arrow file, or stream, of two record batches."""
    table = pa.table(dict(zip("abc", COLUMNS[name], strict=False)))
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS // 2)
    return sink.getvalue().to_pybytes()


# Reads each file twice, in the middle of memory that is filled with one canary and with another:
# rows that are the file's own are the same.
PROGRAM = """
import pickle, resource, sys, time, warnings

import numpy as np
import pyarrow as pa
import pyecho

warnings.simplefilter("ignore")
np.set_printoptions(threshold=sys.maxsize)


def rows_of(batch):
    return rows_of(next(iter(batch.values()))) if isinstance(batch, dict) else len(batch)


def read(data, stream, batch_size, canary):
    around = canary * 2**14
    memory = pa.py_buffer(around + data + around).slice(len(around), len(data))
    table = (pa.ipc.open_stream if stream else pa.ipc.open_file)(memory).read_all()
    if not table.num_columns:
        return []
    try:
        table.validate(full=True)
        expected = table.num_rows
    except pa.ArrowInvalid:
        expected = None
    with pyecho.EchoLoader(table, 1, batch_size=batch_size, shuffle_buffer=0) as loader:
        batches = [(rows_of(batch), repr(batch)) for batch in loader]
    rows = sum(count for count, _ in batches)
    return batches if expected in (None, rows) else f"{rows} rows of {expected}"


def outcome_of(*given):
    start, resident = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        first, second = (read(*given, canary) for canary in (b"\\xc4NAR", b"\\0\\1\\0\\0"))
        outcome = "rows" if first == second else "foreign bytes"
        outcome = first if isinstance(first, str) else outcome
    except (pyecho.EchoError, pa.ArrowException, OSError, StopIteration):
        outcome = "refused"
    except Exception as error:
        outcome = repr(error)
    outcome = "slow" if time.process_time() - start > 1 else outcome
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    return "memory" if resident > 2**16 else outcome


while given := pickle.load(sys.stdin.buffer):
    print(outcome_of(*given), flush=True)
"""


class Reader:
    """The process, begun anew where it has ended."""

    process = None

    def read(self, *given):
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        pickle.dump(given, self.process.stdin)
        self.process.stdin.flush()
        outcome = self.process.stdout.readline().decode().strip()
        if not outcome:
            self.close()
        return outcome or "crash"

    def close(self):
        process, self.process = self.process, None
        if process is not None:
            process.communicate(pickle.dumps(None))


@pytest.fixture(scope="module")
def reader():
    reader = Reader()
    yield reader
    reader.close()


INTERESTING = (0, 1, 2, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1)
CHANGES = st.lists(
    st.tuples(st.integers(0, 2**16), st.sampled_from((1, 4, 8)), st.sampled_from(INTERESTING)),
    min_size=1,
    max_size=4,
)


def changed(data, changes):
    data = bytearray(data)
    for at, width, value in changes:
        begin = at % len(data) // width * width
        old = int.from_bytes(data[begin : begin + width], "little")
        value = old ^ (1 << at % (8 * width)) if value == 255 else value
        data[begin : begin + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")
    return bytes(data)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", COLUMNS)
def test_changed_file_is_refused_or_read_without_a_byte_beside_it(name, stream, reader):
    refused = "refused" if name == "nulls" else "rows"
    assert reader.read(file_of(name, stream), stream, 4) in ("rows", refused)

    @given(CHANGES, st.sampled_from([None, 4]))
    def check(changes, batch_size):
        outcome = reader.read(changed(file_of(name, stream), changes), stream, batch_size)
        event(outcome)
        assert outcome in ("refused", "rows")

    check()
