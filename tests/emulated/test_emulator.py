"""The emulator itself notices, orders, fails and computes. test_captures.py has its captures."""

import ctypes
import threading
import time

import pytest
import scripts

torch = pytest.importorskip("torch")

from waiting import wait_until  # noqa: E402

from pyecho.device.leaves import leaf_of, leaves_in, new_memory  # noqa: E402

TO_DEVICE, TO_HOST = 1, 2
NON_BLOCKING = 1


@pytest.fixture
def report(emulator, tmp_path, monkeypatch):
    """The file to which other processes write their violations."""
    monkeypatch.setenv("CUDA_EMULATOR_REPORT", str(tmp_path / "report"))
    return tmp_path / "report"


# ---- Violations ----


def test_a_source_that_changes_before_its_copy_is_noticed(emulator):
    source = torch.zeros(1000, pin_memory=True)
    with emulator.expect_violation("has changed before it ran: 4000 bytes"):
        with emulator.held():
            source.to("cuda", non_blocking=True)
            source[-1] = 1
        torch.cuda.synchronize()


@pytest.mark.parametrize("end", ["freed", "unregistered"])
def test_pinned_memory_that_ends_under_a_copy_is_noticed(emulator, runtime, end):
    target = runtime.make("cudaMalloc", 4096)
    if end == "freed":
        source = runtime.make("cudaHostAlloc", 4096, 0)
        give_back = runtime.cudaFreeHost
    else:
        memory = torch.zeros(1 << 20, dtype=torch.uint8)  # on pages of its own
        source, give_back = memory.data_ptr(), runtime.cudaHostUnregister
        assert runtime.cudaHostRegister(source, 1 << 20, 0) == 0
        assert memory.is_pinned()
    hold = emulator.held()
    hold.__enter__()
    assert runtime.cudaMemcpyAsync(target, source, 4096, TO_DEVICE, 0) == 0
    before = emulator.calls()

    def let_go():
        wait_until(lambda: emulator.calls() != before)  # the test waits in its call
        hold.__exit__(None, None, None)

    threading.Thread(target=let_go).start()
    with emulator.expect_violation(f"pinned memory was {end} before a copy"):
        assert give_back(source) == 0
    assert runtime.cudaFree(target) == 0


def test_a_copy_past_the_end_is_noticed(emulator, runtime):
    source, target = runtime.make("cudaHostAlloc", 8192, 0), runtime.make("cudaMalloc", 4096)
    with emulator.expect_violation("past the end"):
        assert runtime.cudaMemcpyAsync(target, source, 4097, TO_DEVICE, 0) == 1
    assert runtime.cudaMemcpyAsync(target, source, 4096, TO_HOST, 0) == 1
    assert runtime.cudaFree(target) == runtime.cudaFreeHost(source) == 0


def test_destroyed_streams_and_events_are_noticed(emulator, runtime):
    stream = runtime.make("cudaStreamCreateWithFlags", NON_BLOCKING)
    event = runtime.make("cudaEventCreateWithFlags", 0)
    assert runtime.cudaEventDestroy(event) == 0
    with emulator.expect_violation("a destroyed event was used"):
        assert runtime.cudaEventRecord(event, stream) == 400
    assert runtime.cudaStreamDestroy(stream) == 0
    with emulator.expect_violation("a destroyed stream was used"):
        assert runtime.cudaStreamSynchronize(stream) == 400


def test_an_operator_that_fails_late_is_noticed(emulator):
    with emulator.expect_violation("index out of range"):
        torch.zeros(4, device="cuda").index_select(0, torch.tensor([4], device="cuda"))
        torch.cuda.synchronize()


class Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


def test_a_kernel_without_an_operator_is_noticed(emulator, runtime):
    one = Dim3(1, 1, 1)
    with emulator.expect_violation("does not replace the operator that launches an unknown kernel"):
        assert runtime.cudaLaunchKernel(0, one, one, 0, 0, 0) == 801


def test_a_process_with_a_violation_fails_and_reports_it(report):
    script = "from cuda_emulator import control; control.reset(); control.violation('x')"
    printed = "[cuda emulator] VIOLATION: x\n[cuda emulator] 1 violations\n"
    scripts.run(script, 70, printed)
    assert "VIOLATION: x" in report.read_text()


def test_a_forked_child_gets_an_error_and_is_noticed(report):
    output = scripts.run(
        """
        import ctypes
        from cuda_emulator import control
        runtime = ctypes.CDLL(str(control.LIBRARIES / "libcudart.so.13"))
        assert runtime.cudaFree(None) == 0
        child = os.fork()
        if child == 0:
            os._exit(runtime.cudaDeviceSynchronize())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
        errors=None,
    )
    assert output == "3\n"
    assert "cudaDeviceSynchronize was called in a forked child" in report.read_text()


# ---- Order and time ----


def test_device_memory_is_freed_after_the_work(emulator, runtime):
    memory = runtime.make("cudaMalloc", 4096)
    with emulator.held():
        assert runtime.cudaMemsetAsync(memory, 1, 4096, 0) == 0
        assert runtime.cudaFree(memory) == 0
        time.sleep(0.05)
        assert ctypes.string_at(memory, 4096) == b"\xa5" * 4096


# ---- Failures ----


def test_a_call_fails_once(emulator, runtime):
    emulator.fail("cudaMalloc", nth=2, code=2)
    memory = runtime.make("cudaMalloc", 4096)
    assert runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4096) == 2
    assert runtime.cudaFree(memory) == 0


def test_every_call_fails_after_a_sticky_failure(emulator, runtime):
    emulator.fail("cudaStreamSynchronize", sticky=True)
    assert runtime.cudaDeviceSynchronize() == 0
    assert runtime.cudaStreamSynchronize(0) == 719
    assert runtime.cudaDeviceSynchronize() == 719
    assert runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), 1) == 719
    emulator.spare(["cudaDeviceSynchronize"])
    assert runtime.cudaDeviceSynchronize() == 0
    assert runtime.cudaStreamSynchronize(0) == 719
    emulator.reset()
    assert runtime.cudaDeviceSynchronize() == 0
    emulator.fail_running("kernel")
    torch.ones(1, device="cuda")
    assert [runtime.cudaDeviceSynchronize() for _ in range(2)] == [700, 700]


# ---- Limits ----


# ---- Operators ----


def test_the_cache_can_be_emptied_while_an_operator_is_due(emulator):
    """PyTorch holds a lock there, for which a thread that has the GIL may wait."""
    side, used = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda")
    used = used * 2  # the first takes seconds
    kept = new_memory(1, 1 << 20, used.device)
    leaves_in(kept[0], [leaf_of(torch.uint8, (1,))])  # so that its end keeps the GIL

    def drop():
        time.sleep(0.2)
        kept.clear()

    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)
        doubled = used * 2
    used.record_stream(side)
    del used  # for which the cache waits
    thread = threading.Thread(target=drop)
    thread.start()
    torch.cuda.empty_cache()
    thread.join()
    assert doubled.sum().item() == 4 << 20
