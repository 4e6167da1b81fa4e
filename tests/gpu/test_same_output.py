"""What arrives on the device is what arrives without one, bit for bit."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyecho.torch  # noqa: E402
from pyecho.nest import leaves_of  # noqa: E402

FLOAT8 = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]


def example(number):
    """One of each kind of leaf, with rows of odd and even sizes."""
    leaves = {
        "image": torch.arange(number, number + 12, dtype=torch.float32).reshape(3, 4),
        "pixels": np.full((5, 7), number % 251, np.uint8),
        "bfloat16": (torch.arange(5) * number).to(torch.bfloat16),
        "float16": torch.arange(3).to(torch.float16) - number,
        "float64": torch.tensor(number / 7, dtype=torch.float64),
        "int8": torch.full((3,), -(number % 100), dtype=torch.int8),
        "int16": np.array([number, -number], np.int16),
        "int32": torch.arange(number, number + 3, dtype=torch.int32),
        "complex": torch.tensor([complex(number, -number)]),
        "flags": torch.tensor([number % 2 == 0, number % 3 == 0]),
        "flag": torch.tensor(number % 3 == 0),
        "empty": torch.empty(0, 3),
        "label": number,
        "share": number / 3,
        "name": f"number {number}",
    }
    for dtype in FLOAT8:
        leaves[str(dtype)] = (torch.arange(9.0) - number % 7).to(dtype)
    return leaves


def plain(emission):
    """Return an emission as comparable values: dtypes, shapes and bits."""
    values = []
    for leaf in leaves_of(emission):
        if isinstance(leaf, torch.Tensor):
            on_host = leaf.cpu().contiguous()
            bits = on_host.reshape(-1).view(torch.uint8).tolist() if leaf.numel() else []
            values.append((str(leaf.dtype), tuple(leaf.shape), bits))
        elif isinstance(leaf, np.ndarray):
            values.append((str(leaf.dtype), leaf.shape, leaf.tolist()))
        else:
            values.append(leaf)
    return values


def all_plain(emissions):
    return [plain(emission) for emission in emissions]


def tensors_of(emission):
    return [leaf for leaf in leaves_of(emission) if isinstance(leaf, torch.Tensor)]


CONFIGURATIONS = [
    {"factor": 1},
    {"factor": 3},
    {"factor": 2.5, "shuffle_buffer": 10},
    {"factor": 4, "shuffle_buffer": 7, "drop_last": True},
    {"factor": 3, "shuffle_buffer": 20, "unique_in_batch": True},
    {"factor": 2, "shuffle_buffer": 1000},
    {"factor": 9, "shuffle_buffer": 3, "batch_size": 5},
    {"factor": 2, "shuffle_buffer": 4, "batch_size": 1},
]


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("with_info", [False, True])
def test_example_echoing(device, configuration, echo_on, with_info):
    arguments = {"batch_size": 8, "seed": 3, "with_info": with_info, **configuration}
    source = [example(number) for number in range(53)]
    on_host = pyecho.torch.EchoLoader(source, **arguments)
    on_device = pyecho.torch.EchoLoader(source, **arguments, device=device, echo_on=echo_on)
    for _ in range(2):  # epochs differ, and so does what is drawn
        batches = list(on_device)
        assert all(t.device.type == device.type for batch in batches for t in tensors_of(batch))
        assert all_plain(batches) == all_plain(on_host)
    assert on_device.stats().emitted == on_host.stats().emitted
    assert on_device.stats().fresh == 106


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize("sizes", [[4, 4, 4], [7, 1, 13], [1] * 9])
def test_unbatched(device, echo_on, sizes):
    starts = np.cumsum([0, *sizes])
    source = [
        (torch.arange(start, start + size), torch.randn(size, 6), [f"{start}"] * size)
        for start, size in zip(starts, sizes, strict=False)
    ]
    arguments = {"factor": 3, "batch_size": 4, "unbatch": True, "shuffle_buffer": 5}
    expected = all_plain(pyecho.torch.EchoLoader(source, **arguments))
    loader = pyecho.torch.EchoLoader(source, **arguments, device=device, echo_on=echo_on)
    assert all_plain(loader) == expected


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_rows_of_an_array(device, echo_on):
    source = np.random.default_rng(1).integers(256, size=(1000, 31, 3), dtype=np.uint8)
    arguments = {"factor": 2.5, "batch_size": 64, "shuffle_buffer": 300, "seed": 9}
    expected = all_plain(pyecho.torch.EchoLoader(source, **arguments))
    loader = pyecho.torch.EchoLoader(source, **arguments, device=device, echo_on=echo_on)
    assert all_plain(loader) == expected


@pytest.mark.parametrize("more", [{}, {"shuffle_buffer": 4}, {"copy": True}, {"with_info": True}])
def test_batch_echoing(device, more):
    source = [
        {"x": torch.randn(6, 2), "flag": torch.rand(5) < 0.5, "tag": str(n)} for n in range(7)
    ]
    expected = all_plain(pyecho.torch.EchoLoader(source, 3, **more))
    emitted = list(pyecho.torch.EchoLoader(source, 3, **more, device=device))
    assert all(t.device.type == device.type for item in emitted for t in tensors_of(item))
    assert all_plain(emitted) == expected


def test_numpy_items_become_device_tensors(device):
    source = [np.arange(n, n + 6).reshape(2, 3) for n in range(5)]
    emitted = list(pyecho.torch.EchoLoader(source, 2, device=device))
    assert [item.cpu().tolist() for item in emitted] == [
        item.tolist() for item in source for _ in range(2)
    ]


def test_views_and_strides_are_copied_as_they_look(device):
    base = torch.arange(24.0).reshape(4, 6)
    source = [base.t(), base[:, ::2], base.flip(0), torch.complex(base, base).conj()]
    assert all_plain(pyecho.torch.EchoLoader(source, 1, device=device)) == all_plain(
        [view.resolve_conj() for view in source]
    )


@pytest.mark.parametrize("wanted", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_device_dtype_converts_what_has_axes_of_its_own(device, echo_on, wanted):
    source = [
        (np.full((2, 3), n, np.uint8), np.float32(n), torch.full((4,), n, dtype=torch.int32), n)
        for n in range(20)
    ]
    loader = pyecho.torch.EchoLoader(
        source, 2, batch_size=5, device=device, echo_on=echo_on, device_dtype=wanted
    )
    for images, scalars, ints, labels in loader:
        assert images.dtype == wanted
        assert (scalars.dtype, ints.dtype, labels.dtype) == (
            torch.float32,
            torch.int32,
            torch.int64,
        )
        assert (images == labels[:, None, None]).all()
    # uint8 crossed the link: six bytes of pixels, and 4 + 16 + 8 of the rest
    uses = 40 if echo_on == "host" else 20
    indices = 0 if echo_on == "host" else (20 + 40) * 8
    assert loader.stats().h2d_bytes == uses * (6 + 4 + 16 + 8) + indices


def test_device_dtype_in_batch_echoing(device):
    source = [torch.full((3, 4), n, dtype=torch.uint8) for n in range(6)]
    loader = pyecho.torch.EchoLoader(source, 3, device=device, device_dtype=torch.bfloat16)
    emitted = list(loader)
    assert all(item.dtype == torch.bfloat16 for item in emitted)
    assert [int(item[0, 0]) for item in emitted] == [n for n in range(6) for _ in range(3)]
    assert all(emitted[use] is emitted[use - use % 3] for use in range(18))
    assert loader.stats().h2d_bytes == 6 * 12


def test_augmented_batches_go_to_the_device(device):
    def augment(batch, rng):
        return batch + int(rng.integers(100))

    source = [torch.full((3,), n) for n in range(12)]
    for more in ({"batch_size": 4}, {}):
        expected = all_plain(pyecho.torch.EchoLoader(source, 2, augment=augment, **more))
        loader = pyecho.torch.EchoLoader(source, 2, augment=augment, device=device, **more)
        assert all_plain(loader) == expected


@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_deterministic_algorithms_change_nothing(device, echo_on):
    source = [torch.full((3000,), n % 251, dtype=torch.uint8) for n in range(40)]
    arguments = {"factor": 3, "batch_size": 8, "shuffle_buffer": 9}
    expected = all_plain(pyecho.torch.EchoLoader(source, **arguments))
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which also fills memory before it is written
    try:
        loader = pyecho.torch.EchoLoader(source, **arguments, device=device, echo_on=echo_on)
        assert all_plain(loader) == expected
    finally:
        torch.use_deterministic_algorithms(before)
