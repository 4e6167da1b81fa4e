"""Epochs on a device: one set of threads for all, and iterators that are left half-way."""

import threading
import weakref

import pytest
import torch
from host_device import WAYS

import pyecho
import pyecho.torch


def rows(count=40):
    return [torch.full((3000,), number, dtype=torch.uint8) for number in range(count)]


def arguments_of(way, **more):
    return {"factor": 3, "shuffle_buffer": 8} | WAYS[way] | more


def values(batches):
    return [int(value) for batch in batches for value in batch.reshape(-1, 3000)[:, 0]]


@pytest.fixture
def both(device):
    """Does the same with a loader on the device and one without; returns what each emitted."""

    def do(way, use, source=rows, **more):
        outputs = []
        for place in ({}, {"device": None}):
            loader = pyecho.torch.EchoLoader(source(), **arguments_of(way, **more) | place)
            outputs.append(values(use(loader)))
        return outputs

    return do


@pytest.mark.parametrize("way", WAYS)
def test_later_epochs_use_the_stages_and_threads_of_the_first(device, way):
    loader = pyecho.torch.EchoLoader(rows(), **arguments_of(way))

    def used():
        threads = {each for each in threading.enumerate() if each.name.startswith("pyecho")}
        return len(device), loader._run.epochs.pipeline, threads

    first = values(loader)
    before = used()
    assert before[-1]
    for _ in range(2):
        later = values(loader)
        assert sorted(later) == sorted(first)
        assert later != first
        assert used() == before


def memory_in_use():
    """Bytes on the device, and pinned ones if PyTorch counts what of them is freed."""
    if not torch.cuda.is_available():
        return 0, 0
    torch.cuda.synchronize()
    torch.empty(1, pin_memory=True)  # has the allocator look at what copies have read
    stats = torch.cuda.host_memory_stats()
    pinned = stats["active_bytes.current"] if stats["active_bytes.freed"] else 0
    return torch.cuda.memory_allocated(), pinned


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("way", WAYS)
def test_an_abandoned_iterator_lets_everything_go(device, way, taken):
    before = [threading.active_count(), *memory_in_use()]
    batches = iter(pyecho.torch.EchoLoader(rows(200) * 3, **arguments_of(way)))
    for _ in range(taken):
        next(batches)
    threads = [each for each in threading.enumerate() if each.name.startswith("pyecho")]
    uploaders = [weakref.ref(uploader) for uploader in device]
    device.clear()
    del batches
    for thread in threads:  # no garbage is collected
        thread.join(60)
    after = [threading.active_count(), *memory_in_use()]
    assert all(now <= then for now, then in zip(after, before, strict=True)), (after, before)
    assert [uploader() for uploader in uploaders] == [None] * len(uploaders)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("more", [{}, {"epochs": 3}, {"steps_per_epoch": 11}], ids=str)
def test_after_a_break_the_next_epoch_is_whole(both, way, more):
    def use(loader):
        for taken in (3, 7, 10**6):
            for number, batch in enumerate(loader):
                yield batch
                if number == taken:
                    break

    on_device, on_host = both(way, use, **more)
    assert on_device == on_host


def test_passes_that_fill_no_batch_end_although_each_drops_one(device):
    short = {"factor": 2, "batch_size": 8, "shuffle_buffer": 0, "drop_last": True}
    loader = pyecho.torch.EchoLoader(rows(3), **arguments_of("on the device", epochs=10, **short))
    with pytest.warns(RuntimeWarning, match="no batch"):
        first = list(loader)
    assert [first] + [list(loader) for _ in range(9)] == [[]] * 10


@pytest.mark.parametrize("way", WAYS)
def test_an_adaptive_factor_decides_by_what_has_arrived_and_its_log_gives_the_same(device, way):
    stops_after, stopped = 24, threading.Event()

    def source():
        yield from rows(stops_after)
        assert stopped.wait(60)
        yield from rows(4)

    arguments = arguments_of(way) | {"factor": pyecho.Adaptive(4), "prefetch": 1}
    live = pyecho.torch.EchoLoader(source(), **arguments)
    seen = []
    for batch in live:
        seen.append(batch.clone())
        repeated = sum(map(len, seen)) > stops_after + 8 if "batch_size" in WAYS[way] else True
        if repeated:
            stopped.set()
    assert set(values(seen)) == set(range(stops_after))
    log = live.stats().log
    assert sum(log[0]) >= stops_after
    replayed = pyecho.torch.EchoLoader(
        rows(stops_after) + rows(4), **arguments | {"factor": pyecho.Adaptive(4).replay(log)}
    )
    assert values(replayed) == values(seen)
