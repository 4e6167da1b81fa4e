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


@pytest.mark.parametrize("open_file", [datasets.dataset, parquet.ParquetFile])
def test_parquet(tmp_path, open_file):
    parquet.write_table(table(), tmp_path / "rows.parquet", row_group_size=10)

    def echoed():
        return pyecho.EchoLoader(open_file(tmp_path / "rows.parquet"), 2, batch_size=8)

    check_epochs(echoed, range(40))
    check_states(echoed)
