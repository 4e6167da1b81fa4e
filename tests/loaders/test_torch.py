"""pyecho.torch.EchoLoader speaks tensors."""

from collections import namedtuple

import numpy as np
import pytest

import pyecho

torch = pytest.importorskip("torch")
pyecho_torch = pytest.importorskip("pyecho.torch")

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

Pair = namedtuple("Pair", ["image", "label"])

DTYPES = sorted(
    {
        dtype
        for dtype in vars(torch).values()
        if isinstance(dtype, torch.dtype)
        and not str(dtype).startswith(("torch.q", "torch.bits", "torch.int", "torch.uint"))
    }
    | {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    key=str,
)


def random_tensor(dtype, *shape):
    size = torch.empty((), dtype=dtype).element_size()
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    flat = torch.randint(0, 256, (int(np.prod(shape)) * size,), dtype=torch.uint8)
    return flat.view(dtype).reshape(shape)


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.uint8).tolist()


def loader(source, factor=1, **arguments):
    return pyecho_torch.EchoLoader(source, factor, **arguments)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_dtypes_arrive_bit_by_bit(dtype):
    source = random_tensor(dtype, 4, 6)
    batches = list(loader(list(source), batch_size=2))
    assert all(batch.dtype == dtype and batch.shape == (2, 6) for batch in batches)
    assert [bit for batch in batches for bit in bits(batch)] == bits(source)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_dtypes_arrive_when_batches_are_split(dtype):
    source = random_tensor(dtype, 4, 6)
    [batch] = loader([source[:3], source[3:]], batch_size=4, unbatch=True)
    assert batch.dtype == dtype
    assert bits(batch) == bits(source)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_zero_dimensional_tensors(dtype):
    [batch] = loader([torch.tensor(value, dtype=dtype) for value in (1, 2, 3)], batch_size=3)
    assert batch.dtype == dtype
    assert batch.tolist() == [1, 2, 3]


def test_dtypes_of_one_size_are_not_mixed_up():
    with pytest.raises(pyecho.SpecMismatch, match="bfloat16"):
        list(
            loader(
                [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.float16)],
                batch_size=2,
            )
        )


def test_nests_of_tensors_arrays_numbers_and_text():
    source = [
        {"pair": Pair(torch.full((2,), float(n)), n), "array": np.full(3, n), "text": str(n)}
        for n in range(3)
    ]
    [batch] = loader(source, batch_size=3)
    assert type(batch["pair"]) is Pair
    assert batch["pair"].image.tolist() == [[n, n] for n in range(3)]
    assert batch["pair"].label.dtype == torch.int64
    assert isinstance(batch["array"], torch.Tensor)
    assert batch["text"] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).t(),
        torch.arange(12.0)[::3],
        torch.ones(1).expand(5),
        torch.arange(4.0).requires_grad_(),
        torch.complex(torch.ones(2), torch.ones(2)).conj(),
        torch.complex(torch.ones(2), torch.ones(2)).conj().imag,
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["transposed", "strided", "expanded", "grad", "conjugate", "negative", "parameter"],
)
def test_tensors_of_any_kind_of_view(tensor):
    [batch] = loader([tensor, tensor], batch_size=2)
    assert torch.equal(batch, torch.stack([tensor.detach()] * 2))
    assert not batch.requires_grad


def test_batches_are_private_and_writable():
    source = [torch.arange(4) for _ in range(6)]
    for batch in loader(source, 3, batch_size=4, shuffle_buffer=3):
        assert batch.tolist() == [[0, 1, 2, 3]] * len(batch)
        batch += 100
    assert all(row.tolist() == [0, 1, 2, 3] for row in source)


def test_info_is_numpy():
    batch, info = next(iter(loader(list(torch.arange(4)), batch_size=2, with_info=True)))
    assert isinstance(batch, torch.Tensor)
    assert isinstance(info.source_index, np.ndarray)


def test_the_same_numbers_as_the_numpy_loader():
    source = torch.arange(60).reshape(20, 3)
    arguments = {"batch_size": 7, "shuffle_buffer": 5, "seed": 9}
    ours = [batch.tolist() for batch in loader(list(source), 2.5, **arguments)]
    numpys = [batch.tolist() for batch in pyecho.EchoLoader(source.numpy(), 2.5, **arguments)]
    assert ours == numpys


def test_batch_echoing_hands_tensors_out_as_they_are():
    tensor = torch.zeros(3)
    assert all(use is tensor for use in loader([tensor], 3))


def test_copies_in_batch_echoing_are_tensors_of_their_own():
    tensor = torch.zeros(3)
    uses = list(loader([tensor], 2, copy=True))
    assert len({use.data_ptr() for use in [tensor, *uses]}) == 3


def test_the_numpy_loader_takes_tensors_and_yields_arrays():
    [batch] = pyecho.EchoLoader([torch.arange(3), torch.arange(3)], 1, batch_size=2)
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[0, 1, 2]] * 2


def test_the_numpy_loader_says_where_bfloat16_belongs():
    with pytest.raises(pyecho.ConfigError, match=r"pyecho\.torch\.EchoLoader"):
        iter(pyecho.EchoLoader([torch.zeros(2, dtype=torch.bfloat16)], 1, batch_size=1))


@pytest.mark.filterwarnings("ignore")  # torch calls sparse and quantized tensors experimental
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: torch.eye(3).to_sparse(), "to_dense"),
        (lambda: torch.zeros(2, device="meta"), "cpu"),
        (lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8), "dequantize"),
    ],
    ids=["sparse", "meta", "quantized"],
)
def test_tensors_that_are_no_plain_host_memory_are_refused_with_a_remedy(make, remedy):
    with pytest.raises(pyecho.ConfigError, match=remedy):
        iter(loader([make()], batch_size=1))


@pytest.mark.parametrize("dtype", ["M8[s]", "U3", ">f4", "V4", "g"])
def test_numpy_dtypes_unknown_to_torch_are_refused_with_a_remedy(dtype):
    with pytest.raises(pyecho.ConfigError, match=r"PyTorch has no.*convert.*pyecho\.EchoLoader"):
        iter(loader([np.zeros(2, dtype)], batch_size=1))


def test_a_batch_outlives_its_loader_as_a_tensor():
    batch = next(iter(loader(list(torch.arange(40)), batch_size=4)))
    assert batch.tolist() == [0, 1, 2, 3]
