"""What does not go to a device in batch echoing: what stays on the host, and what is refused."""

import numpy as np
import pytest
import torch

import pyecho
import pyecho.torch

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


@pytest.mark.parametrize("leaf", AS_THEY_ARE.values(), ids=AS_THEY_ARE)
def test_what_pytorch_has_no_tensors_of_stays_on_the_host(read, leaf):
    emitted = read(pyecho.torch.EchoLoader([leaf] * 2, 2, device="cuda:0"))
    assert len(emitted) == 4
    for use in emitted:
        assert type(use) is type(leaf)
        assert np.array_equal(use, leaf)


def test_a_tensor_that_is_elsewhere_already_stays_there(read):
    elsewhere = torch.ones(3, device="meta")
    assert read(pyecho.torch.EchoLoader([elsewhere], 2, device="cuda:0")) == [elsewhere] * 2


REFUSED = {
    "masked": (lambda: np.ma.masked_array(np.arange(4.0), [0, 1, 0, 1]), "mask"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "to_dense"),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.quint8),
        "dequantize",
    ),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "to_padded"),
    "jagged": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        "to_padded",
    ),
}


@pytest.mark.filterwarnings("ignore")  # torch calls such tensors experimental
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("arguments", [{}, {"augment": lambda batch, rng: batch}])
def test_what_would_lose_something_is_refused_after_what_came_before(device, kind, arguments):
    make, remedy = REFUSED[kind]
    loader = pyecho.torch.EchoLoader([torch.ones(3), make()], 2, device="cuda:0", **arguments)
    emitted = []
    with pytest.raises(pyecho.ConfigError, match=remedy):
        emitted.extend(loader)
    assert len(emitted) == 2


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("echo_on", ["host", "device"])
def test_example_echoing_refuses_it_as_well(device, kind, echo_on):
    make, remedy = REFUSED[kind]
    loader = pyecho.torch.EchoLoader([make()], batch_size=1, device="cuda:0", echo_on=echo_on)
    with pytest.raises(pyecho.ConfigError, match=remedy):
        next(iter(loader))


def test_on_the_host_a_masked_array_keeps_its_mask():
    [use] = pyecho.torch.EchoLoader([np.ma.masked_array([1.0, 2.0], [0, 1])], 1)
    assert use.mask.tolist() == [False, True]
