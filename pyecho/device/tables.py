"""The rows of examples in a pool on a device, by slot."""

from __future__ import annotations

import math
from typing import Any

import torch

from pyecho.device.leaves import aligned, leaf_of, leaves_in
from pyecho.device.tensors import WORDS

WORD_BYTES = 16
"""The rows of an example together take a multiple of this."""
SMALL_BYTES = 1024
"""Rows of leaves up to this size lie side by side: many leaves need no more kernels than one."""


class Tables:
    """The rows of all leaves, in tables for `slots` examples like those of these columns.

    A column is one leaf of several examples: a tensor, or a list of what travels by reference.
    Small rows, and those that wide words do not fit, share one table.
    """

    def __init__(self, slots: int, columns: list[Any]) -> None:
        self._lists: dict[int, list[Any]] = {}
        self._empty: dict[int, torch.Tensor] = {}
        shared: list[int] = []
        groups = [shared]
        for number, column in enumerate(columns):
            if isinstance(column, list):
                self._lists[number] = [None] * slots
            elif (row_bytes := _row_bytes(column)) == 0:
                self._empty[number] = column
            elif row_bytes % WORD_BYTES or row_bytes <= SMALL_BYTES:
                shared.append(number)
            else:
                groups.append([number])
        self._columns = len(columns)
        self._tables = [
            (group, _Table(slots, [columns[number] for number in group]))
            for group in groups
            if group
        ]

    def store(self, slots: Any, index: torch.Tensor, columns: list[Any]) -> None:
        """Store rows in these slots; `index` has them on the device."""
        for number, rows in self._lists.items():
            for slot, row in zip(slots, columns[number], strict=True):
                rows[slot] = row
        for group, table in self._tables:
            table.store(index, [columns[number] for number in group])

    def rows(self, slots: Any, index: torch.Tensor) -> list[Any]:
        """Return new columns with the rows in these slots."""
        columns: list[Any] = [None] * self._columns
        for number, rows in self._lists.items():
            columns[number] = [rows[slot] for slot in slots]
        for number, like in self._empty.items():
            columns[number] = like.new_empty((len(index), *like.shape[1:]))
        for group, table in self._tables:
            for number, column in zip(group, table.rows(index), strict=True):
                columns[number] = column
        return columns


class _Table:
    """Rows of some leaves side by side, padded to words that are as wide as possible."""

    def __init__(self, slots: int, columns: list[torch.Tensor]) -> None:
        self._leaves = [leaf_of(column.dtype, column.shape[1:]) for column in columns]
        self._sizes = [_row_bytes(column) for column in columns]
        used = sum(self._sizes)
        if len(columns) > 1 or used % WORD_BYTES:
            self._sizes.append(-used % WORD_BYTES)
        row_bytes = sum(self._sizes)
        self._word = WORDS[math.gcd(row_bytes, WORD_BYTES)]
        words = row_bytes // self._word.itemsize
        self._rows = torch.empty((slots, words), dtype=self._word, device=columns[0].device)

    def store(self, index: torch.Tensor, columns: list[torch.Tensor]) -> None:
        parts = [_bytes_of(column) for column in columns]
        if len(self._sizes) > len(parts):
            parts.append(parts[0].new_empty((len(index), self._sizes[-1])))
        rows = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        # As whole numbers: with deterministic algorithms PyTorch multiplies them, and a product of
        # complex numbers turns infinite ones into others.
        word = torch.int64 if self._word.is_complex else self._word
        self._rows.view(word).index_copy_(0, index, rows.view(word))

    def rows(self, index: torch.Tensor) -> list[torch.Tensor]:
        found, count = self._rows.index_select(0, index).view(torch.uint8), len(index)
        if len(self._sizes) == 1:
            return leaves_in(found.view(-1), self._leaves, count)
        # All leaves in one block, which one kernel fills.
        begins = [0]
        for size in self._sizes:
            begins.append(begins[-1] + aligned(count * size))
        block = found.new_empty(begins.pop())
        rows = [
            leaf_of(torch.uint8, (size,), begin)
            for size, begin in zip(self._sizes, begins, strict=True)
        ]
        parts = leaves_in(block, rows, count)
        torch.split_with_sizes_copy(found, self._sizes, 1, out=parts)
        leaves = [
            leaf._replace(begin=begin) for leaf, begin in zip(self._leaves, begins, strict=False)
        ]
        return leaves_in(block, leaves, count)


def _row_bytes(column: torch.Tensor) -> int:
    return column.shape[1:].numel() * column.element_size()


def _bytes_of(column: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each row, on the same memory if its elements lie side by side."""
    return column.reshape(len(column), column.shape[1:].numel()).view(torch.uint8)
