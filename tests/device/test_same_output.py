"""Batches on a device are those without one, bit for bit; items that cannot go there are refused.

On a machine with a CUDA device, these tests use it.
"""

import copy
import warnings
from itertools import islice

import numpy as np
import pytest
import torch
from host_device import ECHOING, plain, there
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pyecho.torch
from pyecho.torch import Device

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


class Source:
    """Can be read again; items are made on the device if that is their place."""

    items = 11

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        return map(self.make, range(self.items))


class Stateful(Source):
    """Goes on by a state of its own."""

    taken = 0

    def __iter__(self):
        while self.taken < self.items:
            self.taken += 1
            yield self.make(self.taken - 1)
        self.taken = 0

    def state_dict(self):
        return {"taken": self.taken}

    def load_state_dict(self, state):
        self.taken = state["taken"]


def rows(number):
    """A batch of none to three examples."""
    count = (number + 2) % 4
    return {"image": torch.full((count, 3), float(number)), "name": [f"{number}"] * count}


def tensors(number):
    half = torch.full((2,), number, dtype=torch.bfloat16)
    return {"image": torch.full((3,), float(number)), "half": half, "name": f"number {number}"}


def made_there(number):
    return {"image": there(torch.full((3,), float(number))), "name": f"number {number}"}


def add_noise(batch, rng):
    return {**batch, "image": batch["image"] + rng.random() + torch.rand(batch["image"].shape)}


def add_noise_there(batch, rng):
    return {**batch, "noise": torch.rand(3, generator=rng, device=rng.device)}


@st.composite
def cases(draw):
    """Return the kind of source, what makes its items, options of the loader and of the device."""
    batch_size = draw(st.sampled_from([4, None, 1, 8]))
    options = {"batch_size": batch_size, "seed": draw(st.integers(0, 3))}
    options["factor"] = draw(st.sampled_from([1, 2, 2.5, 9]))
    options["shuffle_buffer"] = draw(st.sampled_from([0, 3, 10, 1000]))
    options["with_info"] = draw(st.booleans())
    options |= draw(st.sampled_from([{}, {"epochs": 2}, {"steps_per_epoch": 9}]))
    kind = draw(st.sampled_from([Source, Stateful]))
    on_device = draw(st.sampled_from([{}, {"augment": add_noise_there}, {"dtype": torch.float64}]))
    if batch_size is None:
        makes = [tensors, made_there]
    else:
        makes = [example, rows]
        on_device = on_device | {"echo": draw(st.booleans())}
        options["drop_last"] = draw(st.booleans())
        fits = options["shuffle_buffer"] >= batch_size
        options["unique_in_batch"] = fits and draw(st.booleans())
    make = draw(st.sampled_from(makes))
    options["unbatch"] = make is rows
    if make is not made_there and not on_device.get("echo") and draw(st.booleans()):
        options |= {"augment": add_noise, "augment_workers": draw(st.integers(1, 3))}
    return kind, make, options, on_device


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases(), st.lists(st.integers(0, 9), min_size=1, max_size=4), st.booleans())
def test_batches_are_those_without_a_device_also_after_states(device, case, stops, payload):
    kind, make, options, on_device = case

    def new_loader(device):
        return pyecho.torch.EchoLoader(kind(make), **options, device=device)

    def new_one():
        return new_loader(Device("cuda:0", **on_device))

    def take(loader, count):
        taken = []
        while len(taken) < count:
            taken += plain(islice(loader, count - len(taken)))
        return taken

    with new_one() as loader:
        whole = plain(loader) + plain(loader)
    if make is not made_there and not on_device.keys() & {"augment", "dtype"}:
        with new_loader(None) as loader:
            assert plain(loader) + plain(loader) == whole
    loader, taken = new_one(), []
    for count in stops:
        taken += take(loader, min(count, len(whole) - len(taken)))
        state = loader.state_dict(payload=payload or kind is Stateful)
        loader.close()
        loader = new_one()
        loader.load_state_dict(copy.deepcopy(state))
    taken += take(loader, len(whole) - len(taken))
    loader.close()
    assert taken == whole


def test_collated_batches(device):
    source = [torch.full((n % 5,), float(n)) for n in range(30)]
    options = {"batch_size": 4, "collate_fn": torch.nn.utils.rnn.pad_sequence}
    here, there = (
        pyecho.torch.EchoLoader(source, 2, **options, device=device) for device in (None, "cuda:0")
    )
    assert plain(there) == plain(here)


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 4}, {"batch_size": 4, "device": ECHOING}, {}],
    ids=["examples", "echo on the device", "batches"],
)
def test_nests_of_every_kind(device, arguments):
    pytest.importorskip("optree")
    from nest_kinds import KINDS

    source = []
    for number in range(6):
        read_only = np.frombuffer(bytes([number] * 2), np.uint8)  # PyTorch would warn
        tensor, nested = torch.full((2, 3), float(number)), {"n": read_only, "t": "t"}
        source.append({name: kind.make(tensor, nested) for name, kind in KINDS.items()})
    on_host = pyecho.torch.EchoLoader(source, 2, **(arguments | {"device": None}))
    on_device = pyecho.torch.EchoLoader(source, 2, **({"device": "cuda:0"} | arguments))
    for ours, theirs in zip(on_device, on_host, strict=True):
        for name, kind in KINDS.items():
            our, their = ours[name], theirs[name]
            assert (type(our), kind.rest(our)) == (type(their), kind.rest(their)), name
            (our_a, our_b), (their_a, their_b) = kind.parts(our), kind.parts(their)
            assert plain([our_a]) == plain([their_a]), name
            assert isinstance(our_b["n"], torch.Tensor), "arrays go to the device too"
            assert our_b["n"].tolist() == their_b["n"].tolist()


@pytest.mark.parametrize("echo", [False, True])
def test_hoarded_batches_stay_as_they_are_and_cost_no_host_memory(device, echo):
    source = [torch.full((50_000,), n % 251, dtype=torch.uint8) for n in range(300)]
    arguments = {"factor": 3, "batch_size": 16, "shuffle_buffer": 100}
    expected = [batch[:, 0].tolist() for batch in pyecho.torch.EchoLoader(source, **arguments)]
    loader = pyecho.torch.EchoLoader(source, **arguments, device=Device("cuda:0", echo=echo))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # device memory is PyTorch's: pyecho has nothing to grow
        batches = list(loader)
    assert all((batch == batch[:, :1]).all() for batch in batches)
    assert [batch[:, 0].tolist() for batch in batches] == expected


def test_views_and_strides_are_copied_as_they_look(device):
    base = torch.arange(24.0).reshape(4, 6)
    source = [base.t(), base[:, ::2], base.flip(0), torch.complex(base, base).conj()]
    emitted = list(pyecho.torch.EchoLoader(source, 1, device="cuda:0"))
    assert plain(emitted) == plain(view.resolve_conj() for view in source)


@pytest.mark.parametrize("wanted", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("echo", [False, True])
def test_what_has_axes_of_its_own_is_converted(device, echo, wanted):
    source = [
        (np.full((2, 3), n, np.uint8), np.float32(n), torch.full((4,), n, dtype=torch.int32), n)
        for n in range(20)
    ]
    there = Device("cuda:0", echo=echo, dtype=wanted)
    loader = pyecho.torch.EchoLoader(source, 2, batch_size=5, device=there)
    for images, *others, labels in loader:
        dtypes = [leaf.dtype for leaf in (images, *others, labels)]
        assert dtypes == [wanted, torch.float32, torch.int32, torch.int64]
        assert (images == labels[:, None, None]).all()


AS_THEY_ARE = {
    "foreign byte order": np.arange(6, dtype=np.dtype("i4").newbyteorder()).reshape(2, 3),
    "dates": np.array(["2020-01-01"], dtype="M8[D]"),
    "strings": np.array(["a", "b"]),
    "records": np.zeros(2, dtype=[("a", "i4")]),
    "objects": np.array([1, "a"], dtype=object),
    "a number": 3,
    "a NumPy number": np.float32(2),
    "text": "text",
}


def test_in_batch_echoing_what_pytorch_has_no_tensors_of_stays_on_the_host(device):
    elsewhere = torch.ones(3, device="meta")
    (emitted,) = pyecho.torch.EchoLoader([AS_THEY_ARE | {"there": elsewhere}], 1, device="cuda:0")
    assert emitted.pop("there") is elsewhere
    for name, leaf in AS_THEY_ARE.items():
        assert type(emitted[name]) is type(leaf)
        assert np.array_equal(emitted[name], leaf)


REFUSED = {
    "masked": (lambda: np.ma.masked_array(np.arange(4.0), [0, 1, 0, 1]), "mask"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.quint8),
        "dequantize",
    ),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "to_padded"),
    "jagged": (
        lambda: torch.nested.narrow(
            torch.ones(2, 3), 1, torch.tensor([0, 1]), torch.tensor([2, 1]), layout=torch.jagged
        ),
        "to_padded",
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch calls such tensors experimental
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"augment": lambda batch, rng: batch},
        {"batch_size": 1},
        {"batch_size": 1, "device": ECHOING},
    ],
    ids=["batches", "augmented", "examples", "on the device"],
)
@pytest.mark.parametrize("before", [0, 1])
def test_what_would_lose_something_is_refused_after_what_came_before(
    device, kind, arguments, before
):
    make, remedy = REFUSED[kind]
    source = [torch.ones(3)] * before + [make()]
    emitted = []
    with pytest.raises(pyecho.ConfigError, match=remedy):
        emitted.extend(pyecho.torch.EchoLoader(source, 2, **({"device": "cuda:0"} | arguments)))
    assert len(emitted) == 2 * before


@pytest.mark.parametrize("echo", [False, True])
def test_deterministic_algorithms_change_nothing(device, echo):
    source = [torch.full((3000,), n % 251, dtype=torch.uint8) for n in range(40)]
    arguments = {"factor": 3, "batch_size": 8, "shuffle_buffer": 9}
    expected = plain(pyecho.torch.EchoLoader(source, **arguments))
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # which also fills memory before it is written
    try:
        loader = pyecho.torch.EchoLoader(source, **arguments, device=Device("cuda:0", echo=echo))
        assert plain(loader) == expected
    finally:
        torch.use_deterministic_algorithms(before)
