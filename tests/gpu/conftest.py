"""Tests on a real device. Without one, each is skipped and says why."""

import pytest

torch = pytest.importorskip("torch")

from outcome import has_failed  # noqa: E402
from waiting import join_threads  # noqa: E402

import pyecho  # noqa: E402


def reason_to_skip():
    """Name the part that is missing here; "" if none is."""
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} sees no CUDA device"
    if not pyecho.cuda.is_available():
        return f"pyecho cannot use CUDA: {pyecho.cuda.why_not()}"
    return ""


@pytest.fixture(scope="session")
def gpu():
    """The current CUDA device."""
    if reason := reason_to_skip():
        pytest.skip(reason)
    return torch.device("cuda", torch.cuda.current_device())


@pytest.fixture
def device(gpu, request):
    """The device; after a test that passes, nothing is left that uses it."""
    torch.cuda.synchronize()
    yield gpu
    if not has_failed(request):
        join_threads()
        torch.cuda.synchronize()


@pytest.fixture(scope="session")
def cycles_per_second(gpu):
    """Time the device's clock takes for `torch.cuda._sleep`, measured."""
    cycles = 50_000_000
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)  # the first kernel is slow to start
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    ended.synchronize()
    return cycles / (began.elapsed_time(ended) * 1e-3)


@pytest.fixture
def sleep(device, cycles_per_second):
    """Gives the current stream a kernel that takes that many seconds."""
    return lambda seconds: torch.cuda._sleep(int(seconds * cycles_per_second))
