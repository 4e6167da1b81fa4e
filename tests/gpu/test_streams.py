"""Streams wait for each other: values stay right on any stream of the consumer, without waits."""

import itertools
import threading

import pytest

torch = pytest.importorskip("torch")

from torn import values_of  # noqa: E402

import pyecho.torch  # noqa: E402
from pyecho.device import place  # noqa: E402
from pyecho.torch import Device  # noqa: E402

ROW_BYTES = 100_000
BATCH = 16
EXAMPLES = {"batch_size": BATCH, "shuffle_buffer": 50}


def shifted(batch, generator):
    """Return another batch, late; on which stream the function leaves the thread is its own."""
    torch.cuda._sleep(1_000_000)
    shifted = batch + 1
    torch.cuda.set_stream(torch.cuda.default_stream(batch.device))
    return shifted


WAYS = {
    "batches": {},
    "examples on the host": EXAMPLES,
    "examples on the device": EXAMPLES | {"device": Device("cuda", echo=True)},
    "converted": EXAMPLES | {"device": Device("cuda", dtype=torch.float32)},
    "augmented batches": {"device": Device("cuda", augment=shifted)},
    "augmented examples": EXAMPLES | {"device": Device("cuda", augment=shifted)},
    "augmented on the device": EXAMPLES | {"device": Device("cuda", echo=True, augment=shifted)},
}
WAYS = {way: {"device": Device("cuda")} | more for way, more in WAYS.items()}
STREAMS = {
    "default": lambda device: [torch.cuda.default_stream(device)],
    "of its own": lambda device: [torch.cuda.Stream(device)],
    "in turn": lambda device: [
        torch.cuda.default_stream(device),
        torch.cuda.Stream(device),
        torch.cuda.Stream(device, priority=-1),
    ],
}
SLEEP_SECONDS = 1.0


def source(way, count=256):
    """Items of a constant each; with batch echoing a few rows together."""
    for number in range(count if "batch_size" in WAYS[way] else count // 4):
        shape = (ROW_BYTES,) if "batch_size" in WAYS[way] else (4, ROW_BYTES)
        yield torch.full(shape, number % 251, dtype=torch.uint8)


def on_host(way, factor=3, seed=5):
    """Return the values of the rows of all batches, in order: the same seed without a device."""
    arguments = {k: v for k, v in WAYS[way].items() if k in ("batch_size", "shuffle_buffer")}
    loader = pyecho.torch.EchoLoader(source(way), factor, seed=seed, **arguments)
    added = WAYS[way]["device"].augment is not None
    return [value + added for batch in loader for value in batch[:, 0].tolist()]


def on_device(way, factor=3, seed=5):
    return pyecho.torch.EchoLoader(source(way), factor, seed=seed, **WAYS[way])


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("way", WAYS)
def test_batches_may_be_dropped_while_their_kernels_are_queued(device, sleep, way, streams):
    batches = iter(on_device(way))
    seen = []
    for stream in itertools.cycle(STREAMS[streams](device)):
        with torch.cuda.stream(stream):
            batch = next(batches, None)
            if batch is None:
                break
            sleep(2e-3)  # so that the reading comes long after the dropping
            seen.append(values_of(batch))
            del batch
    torch.cuda.synchronize()
    assert torch.cat(seen).tolist() == on_host(way)


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_had_while_the_consumers_stream_is_busy(device, sleep, way):
    batches = iter(on_device(way))
    seen = [values_of(next(batches)) for _ in range(3)]  # everything has been allocated
    done = torch.cuda.Event()
    sleep(SLEEP_SECONDS)
    done.record()
    taken = [next(batches) for _ in range(4)]  # more than there were ahead
    assert not done.query(), "next() waited for the consumer's stream"
    seen += [values_of(batch) for batch in taken]
    expected = on_host(way)[: sum(map(len, seen))]
    assert torch.cat(seen).tolist() == expected
    del batches


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_is_had_before_its_copy_has_run(device, sleep, way, monkeypatch):
    copies = place.stream_lent_to(monkeypatch, device)
    assert copies.priority == 0  # the lowest: kernels of the step go first
    monkeypatch.setattr("pyecho.device.handover.stream_lent_to", lambda *_: copies)
    gate = threading.Event()
    factor = 2
    are_examples = "batch_size" in WAYS[way]
    first = BATCH // factor if are_examples else 1  # items of the first batch

    def gated():
        for number, item in enumerate(source(way)):
            if number == first:
                gate.wait()
            yield item

    arguments = {**WAYS[way], "shuffle_buffer": 0}
    loader = pyecho.torch.EchoLoader(gated(), factor, **arguments)
    batches = iter(loader)
    try:
        seen = [values_of(next(batches))]
        if not are_examples:
            seen.append(values_of(next(batches)))  # the second use of the first item
        torch.cuda.synchronize()
        done = torch.cuda.Event()
        with torch.cuda.stream(copies):  # ahead of all that follow
            sleep(SLEEP_SECONDS)
            done.record()
        gate.set()
        batch = next(batches)
        assert not done.query(), "next() waited for the copy"
        seen.append(values_of(batch))
        assert not done.query(), "the host waited for the copy"
    finally:
        gate.set()
    copies = factor if are_examples else 4 * factor
    added = WAYS[way]["device"].augment is not None
    emitted = torch.cat(seen).tolist()
    assert emitted == [n + added for n in range(2 * first) for _ in range(copies)][: len(emitted)]
    del batches


@pytest.mark.parametrize(
    "options",
    [{}, {"augment": lambda batch, rng: batch + 0, "augment_workers": 2}],
    ids=["echoed", "augmented"],
)
def test_the_stream_that_makes_an_item_is_waited_for(device, sleep, options):
    def source():
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for number in range(40):
                sleep(1e-3)
                yield torch.full((1, ROW_BYTES), number, device=device)

    options = {"shuffle_buffer": 0, **options}
    seen = []
    with torch.cuda.stream(torch.cuda.Stream(device)):  # ordered after the source's by pyecho only
        for batch in pyecho.torch.EchoLoader(source(), 3, device=device, **options):
            seen.append(values_of(batch))
            del batch
        emitted = torch.cat(seen).tolist()
    assert emitted == [number for number in range(40) for _ in range(3)]


def test_the_stream_that_makes_an_item_again_is_waited_for(device, sleep):
    class Source:
        def __iter__(self):
            with torch.cuda.stream(torch.cuda.Stream(device)):
                sleep(0.5)
                for number in range(40):
                    yield torch.full((1, ROW_BYTES), number, device=device)

    def rest(state):
        loader = pyecho.torch.EchoLoader(Source(), 3, shuffle_buffer=10, device=device)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            found = [values_of(next(batches)).tolist()]
            state = loader.state_dict(payload=False)
            found += [values_of(batch).tolist() for batch in batches]
        return found, state

    whole, state = rest(None)
    assert rest(state)[0] == whole[1:]
