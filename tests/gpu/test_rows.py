"""Rows that operations make, and rows that differ in size, on a device."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyecho.torch  # noqa: E402
from pyecho import Field, Padded, Ragged, ops  # noqa: E402
from pyecho.torch import Device  # noqa: E402


@pytest.mark.parametrize("augment", [None, lambda batch, generator: batch])
def test_operations_make_the_same_rows_as_on_the_host(device, augment):
    rng = np.random.default_rng(0)
    items = [
        {"image": rng.integers(0, 256, (20, 24, 3), np.uint8), "label": n, "name": str(n)}
        for n in range(40)
    ]
    crop = [ops.RandomResizedCrop(9), ops.Normalize(0.5, 0.2), ops.Cast("bfloat16"), ops.ToCHW()]
    options = {"batch_size": 8, "shuffle_buffer": 16, "ops": {"image": crop}}
    here = pyecho.torch.EchoLoader(items, 3, **options)
    there = pyecho.torch.EchoLoader(items, 3, device=Device(device, augment=augment), **options)
    for one, other in zip(here, there, strict=True):
        assert other["image"].device == torch.device(device)
        assert other["image"].dtype == torch.bfloat16
        assert torch.equal(one["image"], other["image"].cpu())
        assert one["name"] == other["name"]


@pytest.mark.parametrize("pad", [None, -1])
def test_rows_that_differ_in_size_go_to_the_device(device, pad):
    lengths = np.random.default_rng(1).integers(0, 30, 50).tolist()
    items = [
        {"tokens": torch.arange(length) + n, "square": torch.full((length, length), float(n))}
        for n, length in enumerate(lengths)
    ]
    fields = {
        "tokens": Field((None,), "int64", max_bytes=1000, pad=pad),
        "square": Field((None, None), "float32", max_bytes=10_000),
    }
    options = {"batch_size": 6, "fields": fields, "with_info": True}
    loader = pyecho.torch.EchoLoader(items, 2, device=device, **options)
    for batch, info in loader:
        tokens, square = batch["tokens"], batch["square"]
        assert isinstance(square, Ragged)
        assert square.values.device == torch.device(device)
        if pad is None:
            assert tokens.layout == torch.jagged
            assert tokens.device == torch.device(device)
            rows = [row.cpu() for row in tokens.unbind()]
        else:
            assert isinstance(tokens, Padded)
            pairs = zip(tokens.values.cpu(), tokens.lengths.tolist(), strict=True)
            rows = [row[:length] for row, length in pairs]
        for row, index in enumerate(info.source_index.tolist()):
            assert torch.equal(rows[row], items[index]["tokens"])
            assert torch.equal(square.row(row).cpu(), items[index]["square"])
