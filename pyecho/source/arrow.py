"""Arrow tables, streams and arrays, read through pyarrow."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from pyecho.items.nest import map_nest
from pyecho.items.rows import rows_of
from pyecho.source.arrow_leaves import Known, NullRow, checked, leaf
from pyecho.source.base import Pass, Source
from pyecho.source.reader import CHUNK_BYTES, Chained, Indexed, too_short
from pyecho.source.sniff import EXPORTS, STREAMS, has_special, length_of

CHUNK_ROWS = 4096  # at most: their objects should stay in the caches until they are in slots
MAPS = Path("/proc/self/maps")
open_stream = pa.RecordBatchReader.from_stream


class Arrow(Source):
    """A source of Arrow data: items are record batches, in example echoing rows.

    These come in chunks of about a megabyte if `batched`, else one by one.
    """

    def __init__(self, given: Any, *, by_row: bool, batched: bool) -> None:
        super().__init__(given)
        self.one_shot = isinstance(given, Iterator)
        self._by_index = by_row and not self.one_shot
        self.batched = batched
        self._by_row = by_row
        exported = any(has_special(given, name) for name in EXPORTS)
        if exported and not self.one_shot and _rows_told(given) is not None:
            arrays = list(islice(self._arrays(), 2))
            leaf(arrays[0][:0], {})  # refuses types at once
            self.in_memory = not any(map(_is_mapped, arrays))

    def _open(self, at: int) -> Pass:
        chunks = _Chunks(self._arrays(), at, whole=not self._by_row)
        return Pass(chunks if self.batched or not self._by_row else Chained(chunks, _each_row))

    def _length(self) -> int | None:
        return _rows_told(self.object) if self._by_row else None  # record batches are not counted

    def _arrays(self) -> Iterator[Any]:
        return arrays_of(self.object)


def arrays_of(given: Any) -> Iterator[Any]:
    """Return an iterator over the arrays of Arrow data; those of a table are arrays of structs.

    An empty one comes first where the type is known, so that it is checked. What is pyarrow's is
    not exported, as that would lose the sizes of its buffers.
    """
    if isinstance(given, pa.RecordBatch | pa.ChunkedArray | pa.Array):
        whole = given.to_struct_array() if isinstance(given, pa.RecordBatch) else given
        chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
        return chain([pa.nulls(0, whole.type)], chunks)
    if isinstance(given, pa.RecordBatchReader):
        empty = pa.nulls(0, pa.struct(list(given.schema)))
        return chain([empty], map(pa.RecordBatch.to_struct_array, given))
    name = next(name for name in (*STREAMS, *EXPORTS) if has_special(given, name))
    if name == "__arrow_c_stream__":
        try:
            return arrays_of(open_stream(given))
        except pa.ArrowInvalid:  # no stream of record batches: a column
            return arrays_of(pa.chunked_array(given))
    if name == "__arrow_c_array__":
        return arrays_of(pa.array(given))
    made = getattr(given, name)()
    return (
        arrays_of(made)
        if name in ("to_reader", "scanner")
        else map(pa.RecordBatch.to_struct_array, made)
    )


def columns_of_batch(batch: Any) -> Any:
    """Return a record batch or table of pyarrow as a dict of its columns."""
    structs = batch.to_struct_array()
    checked("the source", structs.validate)
    try:
        return leaf(structs if isinstance(structs, pa.Array) else structs.combine_chunks(), {})
    except NullRow as null:
        raise null.error(null.row) from None


class _Chunks(Iterator[Any]):
    """Yields the rows of arrays, about a megabyte or a `whole` array at a time, none empty."""

    def __init__(self, arrays: Iterator[Any], start: int, *, whole: bool) -> None:
        self._arrays = arrays
        self._whole = whole
        self._taken: list[Any] = []  # the array that is being read
        self._known: Known = {}
        self._rows = 0  # of a chunk of it; 0: it has not been checked
        self._begin = start  # the next row of it
        self._before = 0  # rows of earlier arrays

    def __next__(self) -> Any:
        """Return the next chunk."""
        while True:
            if not self._taken:
                self._taken.extend(islice(self._arrays, 1))
            if not self._taken:
                self._arrays = iter(())  # which releases the stream
                if self._begin > 0:
                    raise too_short(self._before, self._before + self._begin)
                raise StopIteration
            array = self._taken[0]
            length = len(array)
            if not self._rows:
                rows = _chunk_rows(array)
                self._rows = max(rows, length) if self._whole else rows
            if self._begin < length:
                chunk, end = self._chunk(array, min(length, self._begin + self._rows))
                self._begin = end
                return chunk
            self._before += length
            self._begin -= length
            self._rows, self._known = 0, {}
            del self._taken[0]

    def _chunk(self, array: Any, end: int) -> tuple[Any, int]:
        begin = self._begin
        null = None
        while True:
            try:
                chunk = leaf(array[begin:end], self._known)
                break
            except NullRow as found:
                null, end = found, begin + found.row
        if null is not None and (self._whole or end == begin):
            raise null.error(self._before + end)
        return chunk, end


def _chunk_rows(array: Any) -> int:
    """Check an array, and return how many rows of it are read at a time."""
    if not len(array):
        leaf(array, {})  # refuses its type
        return 1
    checked("the source", array.validate)
    try:
        row_bytes = array.nbytes / len(array)
    except pa.ArrowTypeError:  # views of text, in pyarrow before 26
        row_bytes = 0
    return int(min(CHUNK_ROWS, max(1, CHUNK_BYTES // max(1, row_bytes))))


def _each_row(batch: Any) -> Iterator[Any]:
    return Indexed(lambda row: map_nest(operator.itemgetter(row), batch), 0, rows_of(batch))


def _rows_told(given: Any) -> int | None:
    """Return the number of rows, where telling it runs no query."""
    metadata = getattr(given, "metadata", None)  # of a ParquetFile
    for owner, name in ((given, "num_rows"), (given, "height"), (metadata, "num_rows")):
        rows = getattr(owner, name, None)
        if isinstance(rows, int):
            return rows
    if not any(has_special(given, name) for name in ("__iter__", "scanner")):  # of Polars, Lance
        return None
    try:
        return length_of(given)
    except RuntimeError:  # a query of Daft's
        return None


def _is_mapped(array: Any) -> bool:
    """Return True if an array lies in a mapped file, so reading may wait for the disk.

    Known on Linux.
    """
    addresses = [buffer.address for buffer in array.buffers() if buffer]
    if not addresses or not MAPS.exists():
        return False
    for line in MAPS.read_bytes().splitlines():  # begin-end access offset device inode path
        bounds, _, _, _, inode = line.split(maxsplit=5)[:5]
        begin, end = (int(bound, 16) for bound in bounds.split(b"-"))
        if begin <= addresses[0] < end:
            return inode != b"0"
    return False
