"""PyArrow: tables, and Parquet files that are read piece by piece."""

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
datasets = pytest.importorskip("pyarrow.dataset")

from ecosystem import check_epochs, check_states

import pyecho


def table():
    x = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(120, dtype=np.float32)), 3)
    return pa.table({"x": x, "y": np.arange(40)})


class Parquet:
    """Record batches of a file, read anew in each pass."""

    def __init__(self, path):
        self._path = path

    def __arrow_c_stream__(self, requested_schema=None):
        batches = datasets.dataset(self._path).scanner(batch_size=7).to_reader()
        return batches.__arrow_c_stream__(requested_schema)


def test_parquet_file(tmp_path):
    parquet.write_table(table(), tmp_path / "rows.parquet", row_group_size=10)

    def echoed():
        return pyecho.EchoLoader(Parquet(tmp_path / "rows.parquet"), 2, batch_size=8)

    check_epochs(echoed, range(40))
    check_states(echoed)
