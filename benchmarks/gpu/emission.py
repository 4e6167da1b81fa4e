"""Examples per second that arrive on the device, and the bytes of each on the link."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

import pyecho.torch
from gpu import peers, workload
from gpu.measuring import bytes_over_link, seconds_of_batches
from gpu.workload import Rows, Scale
from pyecho.bench.report import Report
from pyecho.bench.row import Row, number
from pyecho.bench.sampling import Sample, interleaved
from pyecho.config import available_cores

FACTORS = (1, 2, 4, 8)
RESIDENT_FACTOR = 64
"""So many uses that link and host have next to nothing to do."""
PLACES = ("host", "device")
INDEX_BYTES = 8
WORDS, BYTES = "index_select of words", "index_select of bytes"
PLAIN, STREAMED = "DataLoader, non_blocking", "DataLoader, stream prefetching"
USES = 4
BY_HAND = f"DataLoader, stream prefetching, each batch used {USES} times by hand"


def measure(device: torch.device, report: Report, scale: Scale) -> None:
    """Examples a second, for both sizes of rows."""
    for rows in (scale.large, scale.small):
        _measure_rows(device, report, rows, scale)


def _measure_rows(device: torch.device, report: Report, rows: Rows, scale: Scale) -> None:
    rounds = max(1, scale.rounds - 2)
    array = workload.random_rows(rows, scale.source_bytes)
    workers = max(1, min(4, available_cores() - 1))  # as many as pyecho's own threads
    workers = peers.workers_for(workers, rows.batch_bytes, loaders=3)
    # As 8-byte words, because the device gathers them faster than bytes: a better limit.
    words = torch.from_numpy(array[: rows.pool].view("int64")).to(device)
    pool_bytes = words.view(torch.uint8)
    with contextlib.ExitStack() as stack:
        iterators: dict[str, Iterator[torch.Tensor]] = {
            WORDS: peers.index_selected(words, rows.batch, device),
            BYTES: peers.index_selected(pool_bytes, rows.batch, device),
        }
        if workers > 0:  # forked before pyecho has threads
            made = [iter(peers.data_loader(array, rows.batch, workers)) for _ in range(3)]
            iterators[PLAIN] = peers.copied(made[0], device)
            iterators[STREAMED] = peers.stream_prefetched(made[1], device)
            once = peers.stream_prefetched(made[2], device)
            iterators[BY_HAND] = peers.used_again(once, USES)
            del made, once

        def loader(factor: int, place: str) -> Iterator[torch.Tensor]:
            each = pyecho.torch.EchoLoader(
                workload.endless_batches(array, rows.batch),
                factor,
                batch_size=rows.batch,
                unbatch=True,
                shuffle_buffer=rows.pool,
                device=pyecho.torch.Device(device, echo=place == "device"),
            )
            return iter(stack.enter_context(each))

        for factor in FACTORS:
            for place in PLACES:
                iterators[_name(factor, place)] = loader(factor, place)
        iterators[_name(RESIDENT_FACTOR, "device")] = loader(RESIDENT_FACTOR, "device")

        def rate(name: str) -> Callable[[], float]:
            # Batches that never leave the device are very fast, so more of them are timed.
            count = rows.batches * (10 if name in (WORDS, BYTES) else 1)
            return lambda: (
                count * rows.batch / seconds_of_batches(device, iterators[name], count) * 1e-3
            )

        contestants = {name: rate(name) for name in iterators}
        rates = interleaved(f"emission, {rows.name}", rounds, contestants)
        iterators.clear()  # ends the DataLoaders' workers
    report.add(f"Emission, {rows.name}, batches of {rows.batch}", _rows(rates))
    report.note(
        f"emission, {rows.name}: gathering 8-byte words alone is at {number(rates[WORDS].median)} "
        f"thousand rows a second, bytes at {number(rates[BYTES].median)}; the limit is the faster"
    )
    report.note(
        f"emission, {rows.name}: DataLoaders have {workers} workers that gather whole batches"
        if workers > 0
        else f"emission, {rows.name}: no DataLoader, /dev/shm has no room for its batches"
    )


def _name(factor: int, place: str) -> str:
    return f"pyecho, echoed on the {place}, e = {factor}"


def _rows(rates: dict[str, Sample]) -> list[Row]:
    gather = rates[WORDS].combined(max, rates[BYTES])
    unit = "k/s"
    rows = []
    if PLAIN in rates:
        best_peer = rates[PLAIN].combined(max, rates[STREAMED])
        for place in PLACES:
            for factor in FACTORS:
                name = _name(factor, place)
                rows.append(Row(name, rates[name], unit, best_peer, "the better DataLoader below"))
            name = _name(USES, place)
            rows.append(Row(name, rates[name], unit, rates[BY_HAND], "as many uses by hand"))
    for place, factors in (("host", FACTORS), ("device", (*FACTORS, RESIDENT_FACTOR))):
        for factor in factors:
            name = _name(factor, place)
            target = ">= 0.8" if factor == RESIDENT_FACTOR else ""
            rows.append(Row(name, rates[name], unit, gather, "index_select alone", target=target))
    rows += [
        Row(name, rates[name], unit, gather, "index_select alone")
        for name in (PLAIN, STREAMED, BY_HAND)
        if name in rates
    ]
    return rows


def measure_bytes(device: torch.device, report: Report, scale: Scale) -> None:
    """Bytes over the link for each emitted example; exact, so once is enough."""
    rows = Rows("3 KB rows", scale.small.row_bytes, batch=256, pool=1024, batches=1)
    array = workload.random_rows(rows, 8 * rows.batch_bytes)
    cases = [(place, factor) for place in PLACES for factor in FACTORS]
    measured = []
    for place, factor in cases:
        loader = pyecho.torch.EchoLoader(
            array,
            factor,
            batch_size=rows.batch,
            shuffle_buffer=rows.pool,
            device=pyecho.torch.Device(device, echo=place == "device"),
        )
        crossed = bytes_over_link(device, loader)
        stats = loader.stats()
        limit = rows.row_bytes if place == "host" else rows.row_bytes / factor
        index = 0.0 if place == "host" else INDEX_BYTES * (1 + 1 / factor)
        measured.append(
            Row(
                f"echoed on the {place}, e = {factor}, rows of {rows.row_bytes} bytes",
                Sample(((crossed or stats.h2d_bytes) / stats.emitted,)),
                "B",
                Sample((limit + index,)),
                "a row" if place == "host" else f"1/{factor} of a row, and the indices",
                target="1",
            )
        )
    batches = [torch.from_numpy(array[start : start + 256]) for start in range(0, 2048, 256)]
    loader = pyecho.torch.EchoLoader(batches, 4, device=device)
    crossed = bytes_over_link(device, loader)
    stats = loader.stats()
    per_use = Sample(((crossed or stats.h2d_bytes) / stats.emitted,))
    limit_bytes = Sample((rows.batch_bytes / 4,))
    measured.append(
        Row("batch echoing, e = 4, a batch", per_use, "B", limit_bytes, "1/4 of it", target="1")
    )
    report.add("Bytes over the link for each emitted example", measured)
    source = "Kineto counted the bytes" if crossed else "Kineto saw no copies, so pyecho counted"
    report.note(f"bytes: {source}")
