"""Copies over the link, and memory kept on the device, as the emulator counts them."""

import gc
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from waiting import join_threads, wait_until  # noqa: E402

import pyecho.torch  # noqa: E402
from pyecho.device import leaves, memory  # noqa: E402
from pyecho.items.nest import leaves_of  # noqa: E402
from pyecho.torch import Device  # noqa: E402

ROWS, BATCH, PREFETCH = 6400, 64, 2


def loader_of(count, **there):
    source = {f"leaf {n}": np.zeros((ROWS, 4096 // count), np.float32) for n in range(count)}
    device = Device("cuda", **there)
    return pyecho.torch.EchoLoader(source, 2, batch_size=BATCH, shuffle_buffer=256, device=device)


def calls_of_an_epoch(emulator, loader):
    """Calls a batch of each function in the second epoch, and of all of them."""
    list(map(len, loader))
    torch.cuda.synchronize()
    before = emulator.calls(passive=True)
    copies = emulator.get("pinned_copies")
    batches = sum(1 for _ in loader)
    torch.cuda.synchronize()
    after = emulator.calls(passive=True)
    assert batches == ROWS * 2 // BATCH
    a_batch = {name: (after[name] - before[name]) / batches for name in after}
    return a_batch, sum(a_batch.values()), (emulator.get("pinned_copies") - copies) / batches


def settled_bytes():
    """Bytes on the device, once what was dropped has been given back."""
    gc.collect()
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # has the allocator look at what streams have left
    return torch.cuda.memory_allocated()


@pytest.mark.parametrize("count", [2, 20])
def test_a_batch_is_one_copy_however_many_leaves_it_has(emulator, count):
    calls, total, copies = calls_of_an_epoch(emulator, loader_of(count))
    assert copies == pytest.approx(1, abs=0.05)
    assert calls.get("cudaLaunchKernel", 0) < 0.05
    assert total - calls["cudaEventQuery"] < 30  # which asks for the end of slow copies


def test_memory_for_small_batches_is_allocated_many_blocks_at_once(emulator, monkeypatch):
    made = []

    def counted(count, *of):
        made.append(count)
        return new_memory(count, *of)

    new_memory = leaves.new_memory
    monkeypatch.setattr(memory, "new_memory", counted)
    batches = list(map(len, loader_of(2)))  # of 1 MiB
    assert made[0] == 1
    assert set(made[1:]) == {2}, "each of them lets go of the GIL"
    assert sum(made) < len(batches) + 16


def test_a_device_without_room_for_spare_memory_is_asked_for_it_once(emulator, monkeypatch):
    asked = []

    def all_but_one(count, *of):
        asked.append(count)
        return new_memory(max(1, count - 1), *of)

    new_memory = leaves.new_memory
    monkeypatch.setattr(memory, "new_memory", all_but_one)
    assert sum(map(len, map(leaves_of, loader_of(16)))) == 16 * ROWS * 2 // BATCH
    assert asked[:2] == [1, 2]
    assert set(asked[2:]) == {1}, "PyTorch empties its cache whenever there is too little"


@pytest.mark.parametrize("dtype", [None, torch.float16])
def test_memory_that_no_leaf_is_in_any_more_is_freed_without_the_gil(emulator, monkeypatch, dtype):
    shared = []

    class Recorded(leaves._core.TorchMemory):
        def __del__(self):
            shared.append(self.is_shared)

    def recorded(*of):
        return [Recorded(leaves.functions(), memory.tensor()) for memory in new_memory(*of)]

    new_memory = leaves.new_memory
    monkeypatch.setattr(memory, "new_memory", recorded)
    batches = iter(loader_of(1, dtype=dtype))
    for _ in range(20):
        next(batches)
    assert shared == [True] * 20, "what was converted is memory for the next batch"
    del batches
    gc.collect()
    assert not any(shared[20:])


@pytest.mark.parametrize("count", [2, 20])
def test_a_pool_on_the_device_takes_as_many_kernels_however_many_leaves(emulator, count):
    calls, total, copies = calls_of_an_epoch(emulator, loader_of(count, echo=True))
    assert copies == pytest.approx(1, abs=0.15)  # with the slots to store to and read from
    assert calls["cudaLaunchKernel"] < 5
    assert total - calls["cudaEventQuery"] < 50


def test_a_consumer_whose_stream_is_held_keeps_few_batches(emulator):
    rows = np.zeros((1000, 1 << 16), np.uint8)
    loader = pyecho.torch.EchoLoader(
        rows, 4, batch_size=BATCH, device="cuda", prefetch=PREFETCH, threads=1
    )
    batches = iter(loader)
    next(batches)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    taken = []
    consumer = threading.Thread(target=lambda: taken.extend(len(batch) for batch in batches))
    with emulator.held(torch.cuda.current_stream()):
        consumer.start()
        count = -1
        while len(taken) > count:  # until it waits for the device
            count = len(taken)
            time.sleep(0.2)
        assert count < 20
        kept = torch.cuda.memory_allocated() - before
        assert kept <= BATCH << 16, "beside the batches that it had before, one of the consumer's"
        assert torch.cuda.memory_allocated() <= (PREFETCH + 3) * (BATCH << 16) + (1 << 20)
    consumer.join()
    assert sum(taken) == 4000 - BATCH


def made_on(stream):
    for _ in range(ROWS):
        with torch.cuda.stream(stream):
            yield torch.zeros(4096, device="cuda")


@pytest.mark.parametrize("way", ["host", "device", "made there"])
def test_a_stream_that_is_held_holds_up_no_other_loader(emulator, way):
    """The stream of a consumer, or also that of a source."""
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    loaders = [
        iter(
            pyecho.torch.EchoLoader(made_on(stream), 2, device="cuda")
            if way == "made there"
            else loader_of(1, echo=way == "device")
        )
        for stream in streams
    ]
    with emulator.held(streams[0]):  # before anything is allocated on it
        for stream, batches, count in zip(streams, loaders, (3, 20), strict=True):
            with torch.cuda.stream(stream):
                for _ in range(count):
                    next(batches)
        streams[1].synchronize()


def test_a_loader_gets_no_stream_on_which_copies_of_a_dropped_one_wait(emulator):
    stream = torch.cuda.Stream()
    dropped = iter(loader_of(1))
    with torch.cuda.stream(stream):
        next(dropped)
    with emulator.held(stream):
        with torch.cuda.stream(stream):
            for _ in range(3):
                next(dropped)
        del dropped
        join_threads()
        other = iter(loader_of(1))
        next(other)
        assert wait_until(torch.cuda.current_stream().query)


@pytest.mark.parametrize("row_bytes", [4_000, 40_000])
def test_a_pool_is_on_the_device_once_while_it_fills_and_in_states(emulator, row_bytes):
    rows, states = np.zeros((3000, row_bytes), np.uint8), []

    def peak(use):
        device = Device("cuda", echo=True)
        loader = pyecho.torch.EchoLoader(rows, 2, batch_size=16, shuffle_buffer=2500, device=device)
        before = settled_bytes()
        torch.cuda.reset_peak_memory_stats()
        use(loader)
        return torch.cuda.max_memory_allocated() - before

    def save(loader):
        next(iter(loader))
        states.append(loader.state_dict())

    def go_on(loader):
        loader.load_state_dict(states.pop())
        next(iter(loader))

    for use in (save, go_on):
        assert peak(use) < 1.1 * 2500 * row_bytes + (1 << 20)


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("augmented", [False, True])
def test_max_bytes_is_as_much_as_a_loader_keeps_there(emulator, echo, augmented):
    augment = (lambda batch, generator: batch + 1) if augmented else None

    def loader(limit):
        return pyecho.torch.EchoLoader(
            np.zeros((3000, 20_000), np.uint8),
            2,
            batch_size=BATCH,
            shuffle_buffer=500,
            device=Device("cuda", echo=echo, augment=augment, max_bytes=limit),
            threads=1,
        )

    def peak_of_refused(limit):
        """Bytes on the device until the loader is refused; None if it is not."""
        before = settled_bytes()
        torch.cuda.reset_peak_memory_stats()
        try:
            next(iter(loader(limit)))
        except pyecho.ConfigError:
            return torch.cuda.max_memory_allocated() - before
        return None

    refused, needed = 1, 1 << 30
    while needed - refused > 1:
        limit = (refused + needed) // 2
        peak = peak_of_refused(limit)
        assert peak is None or peak <= limit + 512, "nothing is allocated beyond the limit"
        refused, needed = (limit, needed) if peak is not None else (refused, limit)
    settled_bytes()
    before = torch.cuda.memory_allocated()
    batches = iter(loader(needed))
    next(batches)
    torch.cuda.reset_peak_memory_stats()
    for batch in batches:
        del batch
    torch.cuda.synchronize()
    kept = torch.cuda.max_memory_allocated() - before
    work = 4 * BATCH * 20_000  # what the consumer has, and what is in work
    assert 0.7 * needed <= kept <= needed + work + (1 << 20)


def test_a_state_fits_in_max_bytes_of_the_run_that_it_is_of(emulator):
    needed = (PREFETCH + 1 + 1) * BATCH * 20_000  # blocks

    def loader():
        return pyecho.torch.EchoLoader(
            np.arange(3000, dtype=np.float32)[:, None].repeat(5000, 1),
            1,
            batch_size=BATCH,
            shuffle_buffer=500,
            device=Device("cuda", max_bytes=needed),
            prefetch=PREFETCH,
            threads=1,
        )

    first = loader()
    batches = iter(first)
    taken = [next(batches) for _ in range(3)]
    state = first.state_dict()
    rest = [batch[:, 0].tolist() for batch in batches]
    del taken, batches
    for other in (loader(), first):  # with as many items as the pool has, and those of batches
        other.load_state_dict(state)
        before = settled_bytes()
        torch.cuda.reset_peak_memory_stats()
        batches = iter(other)
        first_rows = next(batches)[:, 0].tolist()
        assert torch.cuda.max_memory_allocated() <= before + needed + BATCH * 20_000 + (1 << 20)
        assert [first_rows, *(batch[:, 0].tolist() for batch in batches)] == rest


def test_pinned_blocks_take_little_more_than_their_bytes(emulator):
    torch._C._host_emptyCache()
    before = emulator.get("pinned_bytes")
    rows = np.zeros((500, 18_000), np.uint8)  # 64 are 1.1 MiB, which PyTorch rounds up to 2
    options = {"batch_size": BATCH, "prefetch": 4, "threads": 1}
    loader = pyecho.torch.EchoLoader(rows, 1, device="cuda", **options)
    next(iter(loader))
    assert emulator.get("pinned_bytes") - before < 1.25 * (4 + 1 + 1) * BATCH * 18_000
