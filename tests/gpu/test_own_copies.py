"""Pinned host batches that the consumer copies to the device itself and drops at once."""

import gc

import pytest

torch = pytest.importorskip("torch")

import pyecho.torch  # noqa: E402

ROWS, WIDTH, COUNT, FACTOR = 4, 500_000, 200, 2
PINNED = {"batch_size": ROWS, "shuffle_buffer": 0, "memory": "pinned"}


def source():
    """Pairs: PyTorch knows the second leaf by its storage, as it does not begin where that does."""
    for number in range(COUNT):
        yield torch.tensor(number), torch.full((WIDTH,), number % 251, dtype=torch.uint8)


def expected():
    return [number % 251 for number in range(COUNT) for _ in range(FACTOR)]


def values_of(targets):
    values = torch.cat(targets)
    assert (values == values[:, :1]).all()
    return values[:, 0].tolist()


def test_pytorch_sees_that_batches_are_pinned(device):
    loader = pyecho.torch.EchoLoader(source(), FACTOR, **PINNED)
    batches = iter(loader)
    _, batch = next(batches)
    assert batch.is_pinned()
    assert batch[1:].is_pinned()
    assert not torch.zeros(WIDTH).is_pinned()
    del batches, batch
    _, pageable = next(iter(pyecho.torch.EchoLoader(source(), 1, batch_size=2, memory="pageable")))
    assert not pageable.is_pinned()


@pytest.mark.parametrize("on_stream", ["default", "own"])
@pytest.mark.parametrize("busy_seconds", [0, 5e-3])
def test_a_dropped_batch_is_not_filled_before_its_copy_is_done(
    device, sleep, on_stream, busy_seconds
):
    stream = (
        torch.cuda.default_stream(device) if on_stream == "default" else torch.cuda.Stream(device)
    )
    targets = []
    with torch.cuda.stream(stream):
        for _, batch in pyecho.torch.EchoLoader(source(), FACTOR, **PINNED):
            if busy_seconds:
                sleep(busy_seconds)
            targets.append(batch.to(device, non_blocking=True))
            del batch
    stream.synchronize()
    assert values_of(targets) == expected()


@pytest.mark.parametrize("priority", [0, -1])
def test_a_prefetcher_may_copy_on_a_side_stream_and_drop_the_batch_outside_of_it(
    device, sleep, priority
):
    side = torch.cuda.Stream(device, priority=priority)
    targets = []
    for _, batch in pyecho.torch.EchoLoader(source(), FACTOR, **PINNED):
        with torch.cuda.stream(side):
            sleep(3e-3)
            targets.append(batch.to(device, non_blocking=True))
    side.synchronize()
    assert values_of(targets) == expected()


def test_the_last_batches_are_waited_for(device, sleep):
    loader = pyecho.torch.EchoLoader(source(), 1, **PINNED)
    batches = iter(loader)
    sleep(0.2)
    targets = [next(batches)[1].to(device, non_blocking=True) for _ in range(3)]
    del batches, loader
    gc.collect()  # unregistering the memory before the copies were done would be an error
    assert values_of(targets) == list(range(12))
