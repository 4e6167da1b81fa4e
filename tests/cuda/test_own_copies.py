"""Pinned batches that the consumer copies to a device itself, asynchronously, and drops at once."""

import ctypes
import functools
import gc
import types

import numpy as np
import pytest
import torch

import pyecho
import pyecho.device.memory
import pyecho.torch

ROWS, WIDTH = 4, 2000
LENT_STREAMS = pyecho.device.memory.lent_streams.__wrapped__
PINNED = {"batch_size": ROWS, "shuffle_buffer": 0, "memory": "pinned"}


@pytest.fixture
def to_device(standin, monkeypatch):
    """Copies a batch as ``batch.to("cuda", non_blocking=True)`` does, on a stream of its own."""
    stream = standin.new_stream()
    monkeypatch.setattr("pyecho.buffer.copy_streams", lambda: [(0, stream, ())])

    def copy(batch, stream=stream):
        target = torch.full((ROWS, WIDTH), 0xA5, dtype=torch.uint8)
        standin.device_memory.append(target)
        standin.call(
            "cuMemcpyHtoDAsync",
            3020,
            ctypes.c_uint64(target.data_ptr()),
            ctypes.c_void_p(
                batch.ctypes.data if isinstance(batch, np.ndarray) else batch.data_ptr()
            ),
            ctypes.c_size_t(target.nbytes),
            ctypes.c_void_p(stream),
        )
        return target

    copy.stream = stream
    return copy


def source(rows):
    return (np.full(WIDTH, number % 251, np.uint8) for number in range(rows))


@pytest.mark.parametrize("module", [pyecho, pyecho.torch])
@pytest.mark.parametrize("delay", [0, 300])
def test_a_dropped_batch_is_not_filled_before_its_copy_is_done(standin, to_device, module, delay):
    standin.set_max_delay_us(delay)
    targets = []
    for batch in module.EchoLoader(source(400), 2, **PINNED):
        targets.append(to_device(batch))
        del batch
    standin.synchronize(to_device.stream)
    values = torch.cat(targets)
    assert (values == values[:, :1]).all()
    assert values[:, 0].tolist() == [n % 251 for n in range(400) for _ in range(2)]


class FakeCuda:
    """What pyecho asks of `torch.cuda`: a current stream, and streams that are lent in turn."""

    def __init__(self, standin, count=5):
        self.pools = {
            priority: [standin.new_stream() for _ in range(count)] for priority in (0, -1)
        }
        self.current = 0
        self.initialized = True
        self.drawn = 0
        outer = self

        class Stream:
            def __init__(self, device, priority=0):
                pool = outer.pools[max(priority, -1)]
                self.cuda_stream = pool[outer.drawn % count]
                outer.drawn += 1

            @staticmethod
            def priority_range():
                return (0, -5)

        self.Stream = Stream

    def is_initialized(self):
        return self.initialized

    def device_count(self):
        return 1

    def current_device(self):
        return 0

    def current_stream(self, device):
        return types.SimpleNamespace(cuda_stream=self.current)


@pytest.fixture
def fake_cuda(standin, monkeypatch):
    cuda = FakeCuda(standin)
    monkeypatch.setattr("pyecho.device.memory.lent_streams", functools.cache(LENT_STREAMS))
    monkeypatch.setattr(torch.cuda, "is_initialized", cuda.is_initialized)
    monkeypatch.setattr(torch.cuda, "device_count", cuda.device_count)
    monkeypatch.setattr(torch.cuda, "current_device", cuda.current_device)
    monkeypatch.setattr(torch.cuda, "current_stream", cuda.current_stream)
    monkeypatch.setattr(torch.cuda, "Stream", cuda.Stream)
    return cuda


@pytest.mark.parametrize("priority", [0, -1])
def test_a_copy_on_a_side_stream_that_is_current_no_more_when_the_batch_goes(
    standin, to_device, fake_cuda, monkeypatch, priority
):
    monkeypatch.setattr("pyecho.buffer.copy_streams", pyecho.device.memory.copy_streams)
    side = fake_cuda.pools[priority][3]
    standin.set_max_delay_us(300)
    targets = []
    # for batch in loader:
    #     with torch.cuda.stream(side):
    #         x = batch.to("cuda", non_blocking=True)
    for batch in pyecho.EchoLoader(list(source(400)), 2, **PINNED):
        fake_cuda.current = side
        targets.append(to_device(batch, side))
        fake_cuda.current = 0
    standin.synchronize(side)
    values = torch.cat(targets)
    assert (values == values[:, :1]).all()
    assert values[:, 0].tolist() == [n % 251 for n in range(400) for _ in range(2)]


def test_the_streams_that_pytorch_lends_are_found_once(standin, loaded, fake_cuda):
    pyecho.EchoBuffer(pyecho.Field(1, np.uint8), batch_size=1, memory="pinned").stop()  # a context
    fake_cuda.initialized = False
    assert pyecho.device.memory.copy_streams() == [(0, 0, ())]
    assert fake_cuda.drawn == 0
    fake_cuda.initialized = True
    fake_cuda.current = fake_cuda.pools[0][1]
    [(device, current, lent)] = pyecho.device.memory.copy_streams()
    assert (device, current) == (0, fake_cuda.current)
    assert sorted(lent) == sorted(fake_cuda.pools[0] + fake_cuda.pools[-1])
    drawn = fake_cuda.drawn
    assert pyecho.device.memory.copy_streams() == [(device, current, lent)]
    assert fake_cuda.drawn == drawn


@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
def test_a_consumer_may_go_on_inside_its_own_capture(standin, to_device):
    numbers = []
    for batch in pyecho.EchoLoader(source(200), 1, **PINNED):
        if not numbers:
            assert standin.begin_capture_of(ctypes.c_void_p(to_device.stream)) == 0
        if len(numbers) == 100:
            assert standin.end_capture() == 0  # and nobody has invalidated it
        numbers += batch[:, 0].tolist()
        del batch
    assert numbers == [n % 251 for n in range(200)]


@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
def test_a_bounded_pool_refuses_inside_a_capture_rather_than_wait_for_ever(standin, to_device):
    batches = iter(pyecho.EchoLoader(source(40), 1, **PINNED, max_bytes=100_000))
    assert standin.begin_capture_of(ctypes.c_void_p(to_device.stream)) == 0
    numbers = []
    with pytest.raises(pyecho.BufferExhausted, match="dropped while a CUDA graph was captured"):
        numbers.extend(next(batches)[0, 0] for _ in range(40))
    assert standin.end_capture() == 0
    numbers.extend(batch[0, 0] for batch in batches)
    assert numbers == list(range(0, 40, ROWS))


def test_the_last_batches_are_waited_for(standin, to_device):
    buffer = pyecho.EchoBuffer(pyecho.Field(WIDTH, np.uint8), batch_size=ROWS, memory="pinned")
    for _ in range(ROWS):
        buffer.put(np.full(WIDTH, 7, np.uint8))
    standin.set_max_delay_us(20_000)
    target = to_device(next(iter(buffer)))
    buffer.stop()
    del buffer
    gc.collect()  # unregistering the memory now would be a violation (see the fixture)
    standin.synchronize(to_device.stream)
    assert (target == 7).all()


def test_views_may_die_after_the_driver(standin_library, monkeypatch):
    import scripts

    monkeypatch.setenv("PYECHO_CUDA_DRIVER", str(standin_library))
    scripts.run(
        """
        buffer = pyecho.EchoBuffer(pyecho.Field(9, float), batch_size=1, memory="pinned")
        buffer.put(np.zeros(9))
        batch = next(iter(buffer))
        sys.modules["kept for ever"] = batch
        """
    )
