"""The rows of examples in a pool on a device, by slot."""

from __future__ import annotations

import math
from typing import Any

import torch

from pyecho.device.leaves import Leaf, leaf_of, leaves_in, leaves_of_rows
from pyecho.device.tensors import WORDS

WORD_BYTES = 16
"""The rows of an example together take a multiple of this."""
SMALL_BYTES = 1024
"""Rows of leaves up to this size lie side by side: many leaves need no more kernels than one."""


class Tables:
    """The rows of all leaves, in tables for `slots` examples like those of these columns.

    A column is one leaf of several examples: a tensor. Small rows, and those that wide words do not
    fit, share one table. At most `most_rows` are stored or read at a time.
    """

    def __init__(self, slots: int, columns: list[torch.Tensor], most_rows: int) -> None:
        self._kinds = [(column.dtype, column.shape[1:]) for column in columns]
        shared: list[int] = []
        groups = [shared]
        for number, leaf in enumerate(self.layout(1)):
            if leaf.size_bytes % WORD_BYTES or 0 < leaf.size_bytes <= SMALL_BYTES:
                shared.append(number)
            elif leaf.size_bytes:
                groups.append([number])
        self._tables = [
            (group, _Table(slots, [columns[number] for number in group], most_rows))
            for group in groups
            if group
        ]

    def layout(self, rows: int) -> list[Leaf]:
        """Return where so many rows of each leaf lie in a block."""
        return leaves_of_rows(self._kinds, rows)

    def store(self, index: torch.Tensor, columns: list[torch.Tensor]) -> None:
        """Store rows in the slots that `index` has on the device."""
        for group, table in self._tables:
            table.store(index, [columns[number] for number in group])

    def read(self, index: torch.Tensor, block: Any, leaves: list[Leaf]) -> None:
        """Copy the rows in these slots to a block with this layout."""
        for group, table in self._tables:
            table.read(index, block, [leaves[number].begin for number in group])


class _Table:
    """Rows of some leaves side by side, padded to words that are as wide as possible."""

    def __init__(self, slots: int, columns: list[torch.Tensor], most_rows: int) -> None:
        self._sizes = [leaf_of(column.dtype, column.shape[1:]).size_bytes for column in columns]
        self._pad = -sum(self._sizes) % WORD_BYTES
        self._is_one = len(columns) == 1 and self._pad == 0
        row_bytes = sum(self._sizes) + self._pad
        self._word = WORDS[math.gcd(row_bytes, WORD_BYTES)]
        words = row_bytes // self._word.itemsize
        self._rows = torch.empty((slots, words), dtype=self._word, device=columns[0].device)
        # Rows on their way between leaves and the table, and what pads them.
        most = 0 if self._is_one else most_rows
        self._between = self._rows.new_empty((most, words))
        self._padding = self._rows.new_empty((most, self._pad), dtype=torch.uint8)

    def store(self, index: torch.Tensor, columns: list[torch.Tensor]) -> None:
        parts = [_bytes_of(column) for column in columns]
        if self._is_one:
            rows = parts[0].view(self._word)
        else:
            rows = self._between.narrow(0, 0, len(index))
            parts.append(self._padding.narrow(0, 0, len(index)))
            torch.cat(parts, 1, out=rows.view(torch.uint8))
        # As whole numbers: with deterministic algorithms PyTorch multiplies them, and a product of
        # complex numbers turns infinite ones into others.
        word = torch.int64 if self._word.is_complex else self._word
        self._rows.view(word).index_copy_(0, index, rows.view(word))

    def read(self, index: torch.Tensor, block: Any, begins: list[int]) -> None:
        """Copy rows to a block of memory, in which the leaves begin there."""
        count = len(index)
        if self._is_one:
            leaf = leaf_of(self._word, (count, *self._rows.shape[1:]), begins[0])
            torch.index_select(self._rows, 0, index, out=leaves_in(block, [leaf])[0])
            return
        rows = self._between.narrow(0, 0, count)
        torch.index_select(self._rows, 0, index, out=rows)
        leaves = [
            leaf_of(torch.uint8, (count, size), begin)
            for size, begin in zip(self._sizes, begins, strict=True)
        ]
        parts = [*leaves_in(block, leaves), self._padding.narrow(0, 0, count)]
        sizes = [*self._sizes, self._pad]
        torch.split_with_sizes_copy(rows.view(torch.uint8), sizes, 1, out=parts)


def _bytes_of(column: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each row, on the same memory if its elements lie side by side."""
    return column.reshape(len(column), column.shape[1:].numel()).view(torch.uint8)
