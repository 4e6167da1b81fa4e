"""What is left when a loader is: no thread, no pinned memory, no device memory, no context."""

import ctypes
import gc
import threading

import pytest

torch = pytest.importorskip("torch")

import pyecho  # noqa: E402
import pyecho.torch  # noqa: E402
from pyecho.device.torch import TorchDevice  # noqa: E402

ROW_BYTES = 50_000
MEMORY_TYPE = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
WAYS = {
    "batches": {},
    "examples on the host": {"batch_size": 8},
    "examples on the device": {"batch_size": 8, "echo_on": "device"},
}


def rows(count):
    return (torch.full((ROW_BYTES,), number % 251, dtype=torch.uint8) for number in range(count))


def join_threads():
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join(60)
            assert not thread.is_alive(), thread
    gc.collect()


@pytest.fixture
def registered(device):
    """Whether the driver knows an address: of memory that is pinned."""
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device=device)  # a context is current in this thread

    def known(address):
        kind = ctypes.c_uint()
        result = driver.cuPointerGetAttribute(
            ctypes.byref(kind), MEMORY_TYPE, ctypes.c_uint64(address)
        )
        return result == 0

    return known


@pytest.mark.parametrize("taken", [0, 1, 5])
@pytest.mark.parametrize("way", WAYS)
def test_an_abandoned_iterator_lets_everything_go(device, registered, monkeypatch, way, taken):
    addresses = set()
    place = TorchDevice.place

    def noted(self, leaf):
        placed = place(self, leaf)
        if placed is not None and registered(placed[1]):
            addresses.add(placed[1])
        return placed

    monkeypatch.setattr(TorchDevice, "place", noted)
    allocated = torch.cuda.memory_allocated(device)
    loader = pyecho.torch.EchoLoader(rows(500), 3, device=device, **WAYS[way])
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    if taken and WAYS[way]:
        assert addresses, "batches were not copied from pinned memory"
    del batches, loader
    join_threads()
    torch.cuda.synchronize()
    assert not any(registered(address) for address in addresses)
    assert torch.cuda.memory_allocated(device) == allocated


def test_pinned_memory_lives_as_long_as_a_view_of_it(device, registered):
    loader = pyecho.torch.EchoLoader(rows(50), 2, batch_size=4, memory="pinned")
    batches = iter(loader)
    batch = next(batches)
    address = batch.data_ptr()
    assert registered(address)
    del batches, loader
    join_threads()
    assert registered(address)
    assert (batch == batch[:, :1]).all()
    del batch
    gc.collect()
    assert not registered(address)


@pytest.mark.parametrize("way", WAYS)
def test_exit_in_the_middle_of_an_epoch_is_clean(run, way):
    output = run(
        f"""
        import torch, pyecho.torch
        rows = [torch.full((1_000_000,), n % 251, dtype=torch.uint8) for n in range(200)]
        loader = pyecho.torch.EchoLoader(rows * 10, 3, device="cuda", **{WAYS[way]!r})
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        torch.cuda._sleep(100_000_000)
        print(int(kept[-1].flatten()[0]) >= 0)
        """
    )
    assert output == "True\n"


def test_in_a_forked_child_the_loader_says_so(run):
    output = run(
        """
        import os, warnings
        import torch, pyecho, pyecho.torch
        loader = pyecho.torch.EchoLoader([torch.zeros(4)] * 8, 2, batch_size=4, device="cuda")
        list(loader)
        warnings.simplefilter("ignore")
        child = os.fork()
        if child == 0:
            try:
                list(loader)
            except pyecho.CudaError as error:
                print("initialised before fork()" in str(error), flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        """
    )
    assert output == "True\n"


TWO_GPUS = """
    import gc, torch, pyecho.torch
    {before}
    rows = [torch.full((50_000,), n % 251, dtype=torch.uint8) for n in range(64)]
    loader = pyecho.torch.EchoLoader(rows, 2, **{arguments!r})
    seen = []
    for batch in loader:
        with torch.cuda.device(1):
            torch.cuda._sleep(1_000_000)
        seen.append(batch.to("cuda:1", non_blocking=True).reshape(-1, 50_000))
        del batch
    values = torch.cat(seen)
    assert values.device == torch.device("cuda:1")
    assert (values == values[:, :1]).all()
    assert values[:, 0].tolist() == [n for n in range(64) for _ in range(2)]
    del loader
    gc.collect()
    print(torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))
"""


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("way", [*WAYS, "pinned batches"])
def test_work_on_the_second_device_makes_no_context_on_the_first(run, way, selected):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    arguments = {"device": "cuda:1", "shuffle_buffer": 0, **WAYS.get(way, {})}
    if way == "pinned batches":
        if not selected:
            pytest.skip("nothing says which device pinned batches are for")
        arguments = {"memory": "pinned", "batch_size": 8, "shuffle_buffer": 0}
    before = "torch.cuda.set_device(1)" if selected else ""
    output = run(TWO_GPUS.format(before=before, arguments=arguments))
    assert output == "False True\n"
