"""Polars, DuckDB, Lance and Daft: tables and queries that are read through pyarrow."""

import pytest

pa = pytest.importorskip("pyarrow")

from ecosystem import check_epochs, check_states

import pyecho

TABLE = pa.table({"x": [float(i) for i in range(40)], "y": range(40)})


def lance_dataset(lance, folder):
    path = str(folder / "rows.lance")
    lance.write_dataset(TABLE, path, max_rows_per_group=10, mode="overwrite")
    return lance.dataset(path)


SOURCES = {
    "polars": lambda polars, folder: polars.DataFrame(TABLE),
    "duckdb": lambda duckdb, folder: duckdb.sql(
        "SELECT y, y::DOUBLE AS x FROM range(40) t(y) ORDER BY y"
    ),
    "lance": lance_dataset,
    "daft": lambda daft, folder: daft.from_arrow(TABLE),
}


@pytest.mark.parametrize("name", SOURCES)
def test_rows(name, tmp_path):
    library = pytest.importorskip(name)

    def echoed():
        return pyecho.EchoLoader(SOURCES[name](library, tmp_path), 2, batch_size=8)

    check_epochs(echoed, range(40))
    check_states(echoed)
