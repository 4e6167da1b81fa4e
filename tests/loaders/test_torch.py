"""pyecho.torch.EchoLoader speaks tensors."""

import numpy as np
import pytest
import torch
from drivers import drivers, levels, loader_of
from torch.utils import data

import pyecho
import pyecho.torch


def loader(source, factor=1, **arguments):
    return pyecho.torch.EchoLoader(source, factor, **arguments)


def test_tensors_arrays_and_numbers_become_tensors_and_text_stays():
    source = [(torch.full((2,), float(n)), {"n": n, "a": np.full(3, n)}, str(n)) for n in range(3)]
    for zero_dimensional in (torch.tensor(5), torch.tensor(0.5, dtype=torch.bfloat16)):
        [batch] = loader(
            [(*row, zero_dimensional) for row in source], batch_size=3, shuffle_buffer=0
        )
        x, nest, names, last = batch
        assert x.tolist() == [[n, n] for n in range(3)]
        assert nest["n"].dtype == torch.int64
        assert isinstance(nest["a"], torch.Tensor)
        assert names == ["0", "1", "2"]
        assert (last.dtype, last.shape) == (zero_dimensional.dtype, (3,))


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
    batch += 1
    assert not torch.equal(batch[0], tensor)


@drivers
@levels
def test_the_same_numbers_as_the_numpy_loader(driver, batch_size):
    source = torch.arange(60).reshape(20, 3)
    arguments = {"batch_size": batch_size, "shuffle_buffer": 5, "seed": 9, "with_info": True}
    numpys = loader_of(driver, list(source.numpy()), 3, **arguments)
    for (ours, info), (theirs, expected) in zip(
        loader(list(source), 3, **arguments), numpys, strict=True
    ):
        assert isinstance(ours, torch.Tensor)
        assert ours.tolist() == theirs.tolist()
        assert type(info.source_index) is np.ndarray
        assert info.source_index.tolist() == expected.source_index.tolist()


def test_batch_echoing_hands_tensors_out_as_they_are_or_copies():
    tensor = torch.zeros(3)
    assert all(use is tensor for use in loader([tensor], 3))
    uses = list(loader([tensor], 2, copy=True))
    assert len({use.data_ptr() for use in [tensor, *uses]}) == 3


def test_the_numpy_loader_takes_tensors_and_says_where_others_belong():
    [batch] = pyecho.EchoLoader([torch.arange(3), torch.arange(3)], 1, batch_size=2)
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[0, 1, 2]] * 2
    with pytest.raises(pyecho.ConfigError, match=r"pyecho\.torch\.EchoLoader"):
        list(pyecho.EchoLoader([torch.zeros(2, dtype=torch.bfloat16)], 1, batch_size=1))


@pytest.mark.filterwarnings("ignore")  # torch calls sparse and quantized tensors experimental
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda: torch.eye(3).to_sparse(), "to_dense"),
        (lambda: torch.zeros(2, device="meta"), "cpu"),
        (lambda: torch.quantize_per_tensor(torch.zeros(2), 1.0, 0, torch.qint8), "dequantize"),
        *(
            (lambda dtype=dtype: np.zeros(2, dtype), r"PyTorch has no.*pyecho\.EchoLoader")
            for dtype in ("M8[s]", "U3", ">f4", "V4", "g")
        ),
    ],
)
def test_what_cannot_be_a_tensor_in_host_memory_is_refused_with_a_remedy(make, remedy):
    with pytest.raises(pyecho.ConfigError, match=remedy):
        list(loader([make()], batch_size=1))


# ---------------------------------------------------------------- DataLoaders


class Squares(data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return {"x": torch.full((2,), index), "y": index * index}


class Stream(data.IterableDataset):
    def __iter__(self):
        worker = data.get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(start, 20, step):
            yield Squares()[index]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [Squares, Stream])
@pytest.mark.parametrize("way", ["batches", "examples", "split", "dataset"])
def test_data_loaders_and_datasets_are_sources(workers, dataset, way):
    size = None if way == "examples" else 6
    source = data.DataLoader(dataset(), batch_size=size, num_workers=workers)
    made = loader(
        dataset() if way == "dataset" else source,
        2,
        batch_size=None if way == "batches" else 7,
        unbatch=way == "split",
        shuffle_buffer=0,
    )
    if dataset is Squares:
        assert len(made) == (8 if way == "batches" else 6)
    rows = []
    for batch in made:
        rows += zip(batch["x"][:, 0].tolist(), batch["y"].tolist(), strict=True)
    assert sorted(rows) == sorted([(n, n * n) for n in range(20)] * 2)
