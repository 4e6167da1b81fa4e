"""Captures on the emulator follow CUDA's rules."""

import ctypes
import threading

import pytest

torch = pytest.importorskip("torch")

NON_BLOCKING = 1
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2


def in_thread(function, *arguments):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))
    thread.start()
    thread.join()
    return results[0]


@pytest.fixture
def captured(runtime):
    """Streams of the runtime's own; those that a test captures."""
    return [runtime.make("cudaStreamCreateWithFlags", NON_BLOCKING) for _ in range(2)]


def end_capture(runtime, stream):
    graph = ctypes.c_void_p()
    return runtime.cudaStreamEndCapture(stream, ctypes.byref(graph))


@pytest.mark.parametrize(
    ("mode", "own", "others"), [(GLOBAL, 900, 900), (THREAD_LOCAL, 900, 0), (RELAXED, 0, 0)]
)
def test_unsafe_calls_in_a_capture(runtime, captured, mode, own, others):
    def allocate():
        memory = ctypes.c_void_p()
        return runtime.cudaMalloc(ctypes.byref(memory), 4096) or runtime.cudaFree(memory)

    for call, code in ((allocate, own), (lambda: in_thread(allocate), others)):
        assert runtime.cudaStreamBeginCapture(captured[0], mode) == 0
        assert call() == code
        assert end_capture(runtime, captured[0]) == (901 if code else 0)


def test_a_captured_stream_or_event_cannot_be_asked(runtime, captured):
    event = runtime.make("cudaEventCreateWithFlags", 0)
    for ask in (
        lambda: runtime.cudaStreamQuery(captured[0]),
        lambda: runtime.cudaEventQuery(event),
        lambda: runtime.cudaEventSynchronize(event),
    ):
        assert runtime.cudaStreamBeginCapture(captured[0], RELAXED) == 0
        assert runtime.cudaEventRecord(event, captured[0]) == 0
        assert ask() in (900, 907)
        assert end_capture(runtime, captured[0]) == 901
