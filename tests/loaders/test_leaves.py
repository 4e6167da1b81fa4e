"""Leaves of example echoing: dtypes and layouts travel byte by byte; batches are one's own.

Nests of every kind are in test_nests.py.
"""

import numpy as np
import pytest
import torch
from drivers import batch_of

import pyecho
import pyecho.torch


def test_whole_numbers_are_fine_where_floats_were_first():
    assert batch_of(0.5, 2).tolist() == [0.5, 2.0]


def test_strings_of_any_length_and_objects_travel_by_reference():
    array = np.array(["a", "b" * 100], dtype=np.dtypes.StringDType())
    assert list(pyecho.EchoLoader(array, 1, batch_size=2, shuffle_buffer=0)) == [["a", "b" * 100]]
    row = np.array([{"a": 1}, "b"], dtype=object)
    assert all(it is row for it in batch_of(row, row))


class JaxLike:
    """An array of a dtype that DLPack has no name for in NumPy, as a bfloat16 array of JAX is."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **arguments):
        raise BufferError("unsupported dtype")

    def __dlpack_device__(self):
        return 1, 0

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize("wrap", [np.asarray, JaxLike])
def test_bfloat16_arrays_travel(wrap):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    source = np.arange(6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    rows = [wrap(row) for row in source]
    batch = batch_of(*rows)
    assert (batch.dtype, batch.tobytes()) == (ml_dtypes.bfloat16, source.tobytes())
    [batch] = pyecho.torch.EchoLoader(rows, 1, batch_size=2, shuffle_buffer=0)
    assert batch.dtype == torch.bfloat16
    assert batch.tolist() == source.astype(float).tolist()


# ---------------------------------------------------------------- batches


# ---------------------------------------------------------------- tensors


def test_numpy_loader_takes_tensors_and_says_where_others_belong():
    batch = batch_of(torch.arange(3), torch.arange(3))
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[0, 1, 2]] * 2
    with pytest.raises(pyecho.ConfigError, match=r"pyecho\.torch\.EchoLoader"):
        batch_of(torch.zeros(2, dtype=torch.bfloat16))


@pytest.mark.filterwarnings("ignore")  # torch calls sparse and quantized tensors experimental
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: torch.eye(3).to_sparse(), "to_dense"),
        (lambda: torch.zeros(2, device="meta"), "cpu"),
        (lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8), "dequantize"),
        (lambda: np.zeros(2, "M8[s]"), r"PyTorch has no.*pyecho\.EchoLoader"),
        (lambda: np.zeros(2, ">f4"), r"PyTorch has no.*pyecho\.EchoLoader"),
    ],
)
def test_torch_loader_refuses_leaves_that_cannot_be_tensors_in_host_memory(make, remedy):
    with pytest.raises(pyecho.ConfigError, match=remedy):
        list(pyecho.torch.EchoLoader([make()], 1, batch_size=1))


def negated():
    """Tensors whose memory has the negatives, or the conjugates, of their numbers."""
    numbers = torch.tensor([[1 + 2j, 3 - 4j], [5 + 6j, 7 + 8j]])
    return {"negative": numbers.conj().imag, "conjugate": numbers.conj()}


@pytest.mark.parametrize("kind", ["negative", "conjugate"])
@pytest.mark.parametrize("loader", [pyecho.EchoLoader, pyecho.torch.EchoLoader])
def test_tensors_that_are_negated_when_read_keep_their_sign(kind, loader):
    tensor, wanted = negated()[kind], negated()[kind].resolve_conj().resolve_neg().numpy()
    for source in ([*tensor], tensor):
        [batch] = loader(source, 1, batch_size=2, shuffle_buffer=0)
        np.testing.assert_array_equal(np.asarray(batch), wanted)
    buffer = pyecho.EchoBuffer(pyecho.spec_of(tensor[0]), 1, batch_size=2)
    buffer.put_batch(tensor)
    buffer.close()
    np.testing.assert_array_equal(*buffer, wanted)
