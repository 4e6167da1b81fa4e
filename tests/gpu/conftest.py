"""Tests on a real device. Without one, each is skipped and says why."""

import pytest

torch = pytest.importorskip("torch")

from outcome import has_failed  # noqa: E402
from waiting import join_threads  # noqa: E402


@pytest.fixture(scope="session")
def gpu():
    """The current CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip(f"PyTorch {torch.__version__} sees no CUDA device")
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
def sleep(gpu):
    """Gives the current stream a kernel that takes that many seconds; the clock is measured."""
    cycles = 50_000_000
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)  # the first kernel is slow to start
    began.record()
    torch.cuda._sleep(cycles)
    ended.record()
    ended.synchronize()
    cycles_per_second = cycles / (began.elapsed_time(ended) * 1e-3)
    return lambda seconds: torch.cuda._sleep(int(seconds * cycles_per_second))
