"""What arrives on a device is what arrives without one, bit for bit."""

import numpy as np
import pytest
import torch
from nest_kinds import KINDS
from standin import StandinTensors

import pyecho.torch
from pyecho.nest import leaves_of


def example(number):
    return {
        "image": torch.arange(number, number + 12, dtype=torch.float32).reshape(3, 4),
        "half": (torch.arange(5) * number).to(torch.bfloat16),
        "flag": torch.tensor(number % 3 == 0),
        "bytes": np.full(3, number % 251, np.uint8),
        "label": number,
        "name": f"number {number}",
    }


def plain(emission):
    """An emission as comparable values, dtypes and shapes included."""
    values = []
    for leaf in leaves_of(emission):
        if isinstance(leaf, torch.Tensor):
            bits = leaf.contiguous().reshape(-1).view(torch.uint8).tolist() if leaf.numel() else []
            values.append((str(leaf.dtype), tuple(leaf.shape), bits))
        elif isinstance(leaf, np.ndarray):
            values.append((str(leaf.dtype), leaf.shape, leaf.tolist()))
        else:
            values.append(leaf)
    return values


def all_plain(emissions):
    return [plain(emission) for emission in emissions]


CONFIGURATIONS = [
    {"factor": 1},
    {"factor": 3},
    {"factor": 2.5, "shuffle_buffer": 10},
    {"factor": 4, "shuffle_buffer": 7, "drop_last": True},
    {"factor": 3, "shuffle_buffer": 20, "unique_in_batch": True},
    {"factor": 3, "shuffle_buffer": 8, "unique_in_batch": True, "drop_last": True},
    {"factor": 2, "shuffle_buffer": 1000},
    {"factor": 9, "shuffle_buffer": 3, "batch_size": 5},
    {"factor": 2, "shuffle_buffer": 4, "batch_size": 1},
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 4}, {"batch_size": 4, "echo_on": "device"}, {}],
    ids=["examples", "echo on the device", "batches"],
)
def test_nests_of_every_kind(read, kind, arguments):
    source = [
        kind.make(torch.full((2, 3), float(n)), {"n": np.full(2, n), "t": "t"}) for n in range(6)
    ]
    on_host = list(pyecho.torch.EchoLoader(source, 2, **(arguments | {"echo_on": "host"})))
    on_device = read(pyecho.torch.EchoLoader(source, 2, device="cuda:0", **arguments))
    for ours, theirs in zip(on_device, on_host, strict=True):
        assert (type(ours), kind.rest(ours)) == (type(theirs), kind.rest(theirs))
        assert plain(kind.parts(ours)[0]) == plain(kind.parts(theirs)[0])
        n = kind.parts(ours)[1]["n"]
        assert isinstance(n, torch.Tensor), "arrays go to the device too"
        assert n.tolist() == kind.parts(theirs)[1]["n"].tolist()


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@pytest.mark.parametrize("with_info", [False, True])
def test_example_echoing(read, configuration, echo_on, with_info):
    arguments = {"batch_size": 8, "seed": 3, "with_info": with_info, **configuration}
    source = [example(number) for number in range(53)]
    on_host = pyecho.torch.EchoLoader(source, **arguments)
    on_device = pyecho.torch.EchoLoader(source, **arguments, device="cuda:0", echo_on=echo_on)
    for _ in range(2):  # epochs differ, and so does what is drawn
        assert all_plain(read(on_device)) == all_plain(on_host)
    assert on_device.stats().emitted == on_host.stats().emitted
    assert on_device.stats().batches == on_host.stats().batches
    assert on_device.stats().fresh == 106


@pytest.mark.parametrize("echo_on", ["host", "device"])
@pytest.mark.parametrize("sizes", [[4, 4, 4], [7, 1, 13], [1] * 9])
def test_unbatched(read, echo_on, sizes):
    starts = np.cumsum([0, *sizes])
    source = [
        (torch.arange(start, start + size), torch.randn(size, 6), [f"{start}"] * size)
        for start, size in zip(starts, sizes, strict=False)
    ]
    arguments = {"factor": 3, "batch_size": 4, "unbatch": True, "shuffle_buffer": 5}
    expected = all_plain(pyecho.torch.EchoLoader(source, **arguments))
    loader = pyecho.torch.EchoLoader(source, **arguments, device="cuda:0", echo_on=echo_on)
    assert all_plain(read(loader)) == expected


@pytest.mark.parametrize("more", [{}, {"shuffle_buffer": 4}, {"copy": True}, {"with_info": True}])
def test_batch_echoing(read, more, monkeypatch):
    monkeypatch.setattr(StandinTensors, "eager", "copy" in more)
    source = [{"x": torch.randn(6, 2), "y": np.arange(6), "tag": str(n)} for n in range(7)]
    expected = all_plain(
        [
            ({**b, "y": torch.from_numpy(b["y"].copy())}, *info)
            for b, *info in (
                e if "with_info" in more else (e,)
                for e in pyecho.torch.EchoLoader(source, 3, **more)
            )
        ]
    )
    loader = pyecho.torch.EchoLoader(source, 3, **more, device="cuda:0")
    emitted = [e if "with_info" in more else (e,) for e in read(loader)]
    assert all_plain(emitted) == expected


def test_examples_without_elements(read):
    source = [(torch.empty(0, 3), n) for n in range(6)]
    for echo_on in ("host", "device"):
        loader = pyecho.torch.EchoLoader(
            source, 2, batch_size=4, device="cuda:0", echo_on=echo_on, shuffle_buffer=3
        )
        assert [tuple(x.shape) for x, _ in read(loader)] == [(4, 0, 3)] * 3


def test_views_and_strides_are_copied_as_they_look(read):
    base = torch.arange(24.0).reshape(4, 6)
    source = [base.t(), base[:, ::2], base.flip(0), torch.complex(base, base).conj()]
    assert all_plain(read(pyecho.torch.EchoLoader(source, 1, device="cuda:0"))) == all_plain(
        [view.resolve_conj() for view in source]
    )


@pytest.mark.parametrize("wanted", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_device_dtype_converts_what_has_axes_of_its_own(read, echo_on, wanted):
    source = [
        (np.full((2, 3), n, np.uint8), np.float32(n), torch.full((4,), n, dtype=torch.int32), n)
        for n in range(20)
    ]
    loader = pyecho.torch.EchoLoader(
        source, 2, batch_size=5, device="cuda:0", echo_on=echo_on, device_dtype=wanted
    )
    for images, scalars, ints, labels in read(loader):
        assert images.dtype == wanted
        assert (scalars.dtype, ints.dtype, labels.dtype) == (
            torch.float32,
            torch.int32,
            torch.int64,
        )
        assert (images == labels[:, None, None]).all()


def test_augmented_batches_go_to_the_device(read):
    def augment(batch, rng):
        return batch + int(rng.integers(100))

    source = [torch.full((3,), n) for n in range(12)]
    for more in ({"batch_size": 4}, {}):
        expected = all_plain(pyecho.torch.EchoLoader(source, 2, augment=augment, **more))
        loader = pyecho.torch.EchoLoader(source, 2, augment=augment, device="cuda:0", **more)
        assert all_plain(read(loader)) == expected
