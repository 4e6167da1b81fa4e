"""Pinned host batches that the consumer copies to the device itself and drops at once."""

import gc
from functools import partial

import pytest

torch = pytest.importorskip("torch")

import torn  # noqa: E402
from waiting import join_threads  # noqa: E402

import pyecho.torch  # noqa: E402

ROWS, WIDTH, COUNT, FACTOR = 4, 500_000, 200, 2
PINNED = {"batch_size": ROWS, "shuffle_buffer": 0, "pin_memory": True}
STREAMS = {
    "default": torch.cuda.default_stream,
    "own": torch.cuda.Stream,
    "of high priority": partial(torch.cuda.Stream, priority=-1),
}


def source():
    """Pairs: PyTorch knows the second leaf by its storage, as it does not begin where that does."""
    for number in range(COUNT):
        yield torch.tensor(number), torch.full((WIDTH,), number % 251, dtype=torch.uint8)


def values_of(targets):
    return torn.values_of(torch.cat(targets)).tolist()


def test_a_batch_is_pinned_for_pytorch_as_long_as_there_is_a_view_of_it(device):
    loader = pyecho.torch.EchoLoader(source(), FACTOR, **PINNED)
    batches = iter(loader)
    row = next(batches)[1][2]
    rest = [batch for batch, _ in batches]
    assert len(rest) == COUNT * FACTOR // ROWS - 1
    del batches, loader
    join_threads()
    assert row.is_pinned()
    assert (row == 1).all()
    assert not torch.zeros(WIDTH).is_pinned()
    _, pageable = next(iter(pyecho.torch.EchoLoader(source(), 1, batch_size=2, pin_memory=False)))
    assert not pageable.is_pinned()


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("busy_seconds", [0, 4e-3])
def test_a_dropped_batch_is_not_filled_before_its_copy_is_done(device, sleep, stream, busy_seconds):
    copies = STREAMS[stream](device)
    targets = []
    for _, batch in pyecho.torch.EchoLoader(source(), FACTOR, **PINNED):
        with torch.cuda.stream(copies):
            if busy_seconds:
                sleep(busy_seconds)
            targets.append(batch.to(device, non_blocking=True))
        del batch
    copies.synchronize()
    assert values_of(targets) == [n % 251 for n in range(COUNT) for _ in range(FACTOR)]


def test_the_last_batches_are_waited_for(device, sleep):
    loader = pyecho.torch.EchoLoader(source(), 1, **PINNED)
    batches = iter(loader)
    sleep(0.2)
    targets = [next(batches)[1].to(device, non_blocking=True) for _ in range(3)]
    del batches, loader
    gc.collect()  # unregistering the memory before the copies were done would be an error
    assert values_of(targets) == list(range(12))
