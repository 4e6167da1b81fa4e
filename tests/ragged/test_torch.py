"""Leaves whose examples differ in size in PyTorch: jagged nested tensors, and states in files."""

import numpy as np
import torch

import pyecho
import pyecho.torch
from pyecho import Field

TOKENS = Field((None,), "int64", max_bytes=400)


def documents(count=20):
    rng = np.random.default_rng(0)
    lengths = rng.integers(0, 40, count).tolist()
    return [torch.arange(length) + 100 * number for number, length in enumerate(lengths)]


def test_field_with_one_axis_that_varies_makes_a_jagged_tensor():
    items = documents()
    options = {"batch_size": 4, "shuffle_buffer": 8, "with_info": True}
    for batch, info in pyecho.torch.EchoLoader(items, 2, fields=TOKENS, **options):
        assert batch.layout == torch.jagged
        for row, index in zip(batch.unbind(), info.source_index, strict=True):
            assert torch.equal(row, items[index])


def test_axes_behind_it_stay():
    items = [{"x": torch.randn(length, 2, 3)} for length in (1, 5, 0, 3)]
    field = Field((None, 2, 3), "float32", max_bytes=1000)
    loader = pyecho.torch.EchoLoader(items, 1, batch_size=4, shuffle_buffer=0, fields={"x": field})
    [batch] = loader
    for row, item in zip(batch["x"].unbind(), items, strict=True):
        assert torch.equal(row, item["x"])
    batch["x"].requires_grad_().sum().backward()


def test_field_with_several_axes_that_vary_makes_ragged_tensors():
    items = [torch.randn(length, length + 1).to(torch.bfloat16) for length in (1, 5, 3)]
    field = Field((None, None), "bfloat16", max_bytes=1000)
    [batch] = pyecho.torch.EchoLoader(items, 1, batch_size=3, shuffle_buffer=0, fields=field)
    assert isinstance(batch, pyecho.Ragged)
    for index, item in enumerate(items):
        assert torch.equal(batch.row(index), item)


def test_bfloat16_is_named_as_torch_names_it_and_padded_with_its_values():
    items = [torch.ones(1, dtype=torch.bfloat16), torch.ones(3, dtype=torch.bfloat16)]
    for dtype in (torch.bfloat16, "bfloat16"):
        field = Field((None,), dtype, max_bytes=100, pad=1.5)
        options = {"batch_size": 2, "shuffle_buffer": 0, "fields": field}
        [batch] = pyecho.torch.EchoLoader(items, 1, **options)
        assert batch.values.tolist() == [[1, 1.5, 1.5], [1, 1, 1]]
        assert batch.values.dtype == torch.bfloat16
