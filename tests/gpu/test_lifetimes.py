"""Loaders on devices at the end of a process, in a forked child, and beside another device."""

import pytest
import scripts

torch = pytest.importorskip("torch")

WAYS = {
    "batches": ({}, False),
    "examples on the host": ({"batch_size": 8}, False),
    "examples on the device": ({"batch_size": 8}, True),
}
"""Options of the loader, and whether the device echoes."""


@pytest.mark.parametrize(("options", "echo"), WAYS.values(), ids=WAYS)
def test_exit_in_the_middle_of_an_epoch_is_clean(gpu, options, echo):
    output = scripts.run(
        f"""
        import torch, pyecho.torch
        rows = [torch.full((1_000_000,), n % 251, dtype=torch.uint8) for n in range(200)]
        device = pyecho.torch.Device("cuda", echo={echo})
        loader = pyecho.torch.EchoLoader(rows * 10, 3, device=device, **{options!r})
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        torch.cuda._sleep(100_000_000)
        print(int(kept[-1].flatten()[0]) >= 0)
        """
    )
    assert output == "True\n"


@pytest.mark.parametrize(("options", "echo"), WAYS.values(), ids=WAYS)
def test_in_a_forked_child_the_loader_says_so(gpu, options, echo):
    output = scripts.run(
        f"""
        import warnings
        import torch, pyecho.torch
        device = pyecho.torch.Device("cuda", echo={echo})
        arguments = {{"source": [torch.zeros(4)] * 8, "device": device, **{options!r}}}
        loader, other, closed = (pyecho.torch.EchoLoader(**arguments) for _ in range(3))
        list(loader)
        left, ended = iter(other), iter(closed)
        next(left), next(ended)
        warnings.simplefilter("ignore")
        child = os.fork()
        if child == 0:
            try:
                list(loader)
            except pyecho.CudaError as error:
                print("initialised before fork()" in str(error), flush=True)
            closed.close()
            del loader, other, left, closed, ended  # what is on the device belongs to the parent
            os._exit(0)
        os.waitpid(child, 0)
        """
    )
    assert output == "True\n"


TWO_GPUS = """
    import torch, pyecho.torch
    {before}
    rows = [torch.full((50_000,), n % 251, dtype=torch.uint8) for n in range(64)]
    device = pyecho.torch.Device({device!r}, echo={echo})
    loader = pyecho.torch.EchoLoader(rows, 2, device=device, shuffle_buffer=0, **{options!r})
    seen = []
    def use(batch):
        with torch.cuda.device(1):
            torch.cuda._sleep(1_000_000)
        seen.append(batch.to("cuda:1", non_blocking=True).reshape(-1, 50_000))
    batches = iter(loader)
    use(next(batches))
    # The current device of a new thread is the first one again.
    thread = threading.Thread(target=lambda: [use(batch) for batch in batches])
    thread.start()
    thread.join()
    values = torch.cat(seen)
    assert values.device == torch.device("cuda:1")
    assert (values == values[:, :1]).all()
    assert values[:, 0].tolist() == [n for n in range(64) for _ in range(2)]
    del loader, batches, thread
    gc.collect()
    print(torch._C._cuda_hasPrimaryContext(0), torch._C._cuda_hasPrimaryContext(1))
"""


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("way", [*WAYS, "pinned batches"])
def test_work_on_the_second_device_makes_no_context_on_the_first(gpu, way, selected):
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU only")
    device, (options, echo) = "cuda:1", WAYS.get(way, ({}, False))
    if way == "pinned batches":
        if not selected:
            pytest.skip("nothing says which device pinned batches are for")
        device, options = None, {"pin_memory": True, "batch_size": 8}
    before = "torch.cuda.set_device(1)" if selected else ""
    script = TWO_GPUS.format(before=before, device=device, echo=echo, options=options)
    output = scripts.run(script)
    assert output == "False True\n"
