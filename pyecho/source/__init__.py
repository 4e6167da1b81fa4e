"""Sources: kinds of data that a loader reads, each a class derived from `Source`.

Read `base` first, with the one door to a pass (`Source.open`), then `reader`, of which passes are
made, and a kind: `arrays`, `iterable`, `arrow` (with `arrow_leaves`) and `ray`, `native`,
`dataloader` with its `lists`; `indexed` and `worker_source` (whose items workers make) read by
index in another order. `seen` and `limited` watch a pass, `sampler_reader` reads samplers, and
`sniff` knows the objects of other libraries.

======================================  ==================================================
Source                                  Items of a pass
======================================  ==================================================
array, tensor, h5py or zarr array       its rows
tuple of at least two columns           tuples of their rows, ``(X[i], Y[i])``
namedtuple, dict, mapping of columns    namedtuples, dicts of their rows
list of columns that cannot be items    tuples of their rows
``__arrow_c_stream__``: Arrow tables    dicts of their columns for each record batch; in example
                                        echoing, their rows
``__arrow_c_array__``: Arrow arrays     the array; in example echoing, its rows
``to_reader()``, ``scanner()``,         as of Arrow tables, if it cannot be iterated: pyarrow's
``to_batches()``, ``iter_batches()``    datasets and Parquet files, Lance
datasets and shards of Ray Data         as of Arrow tables, block by block
``__getitem__`` and ``__len__`` only    ``source[i]`` for i in ``range(len(source))``
``__pyecho_feed__``                     examples that it puts into the slots itself
`DataLoader` over a map-style dataset    its batches, from any place on
anything else that can be iterated      what iterating it yields
======================================  ==================================================

A column is anything with a length and items by index (`pyecho.source.arrays.rows_in`). A list is
one of columns if one of them slices into arrays (h5py, zarr), or, in example echoing, if arrays of
equal length differ in dtype or in the shape of a row (with `fields`: in its number of axes).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.config import Config
from pyecho.source.arrays import Arrays, columns_of, is_array
from pyecho.source.base import Source
from pyecho.source.dataloader import DataLoaderSource, owned
from pyecho.source.iterable import Iterable
from pyecho.source.sniff import has_special, is_arrow

if TYPE_CHECKING:
    from pyecho.source.arrow import Arrow

__all__ = ["Source", "source_of"]


def source_of(given: Any, config: Config) -> Source:
    """Return the source that reads what the user gave: in its order, or by index, or flattened.

    Raises `ConfigError` if the source cannot be iterated, if iterating it would yield names or
    characters instead of data, if its columns differ in length, if it may be columns as well as
    items, and if it has no items by index, or no lists, where options ask for them.
    """
    source = _read_in_order(given, config)
    if config.num_workers:
        from pyecho.source.worker_source import WorkerSource

        source = WorkerSource(source, config)
    elif config.by_index:
        from pyecho.source.indexed import MapStyleSource

        source = MapStyleSource(source, config)
    if config.unbatch == "lists" and not source.batched:
        source.split_lists()
    return source


def _read_in_order(given: Any, config: Config) -> Source:
    unbatch, by_row = config.splits_batches, config.batch_size is not None
    alike = by_row and config.collate_fn is None  # the examples
    if callable(getattr(given, "__pyecho_feed__", None)):
        if not alike or unbatch:
            raise ConfigError(
                f"the source ({type(given).__name__}) fills slots with examples itself "
                "(__pyecho_feed__), so it needs a batch_size, and neither unbatch nor collate_fn"
            )
        from pyecho.source.native import Native

        return Native(given)
    ray = sys.modules.get("ray.data")
    of_ray = ray is not None and isinstance(given, ray.Dataset | ray.DataIterator)
    if not of_ray:
        _check(given)
    if of_ray or is_arrow(given):
        return _arrow(given, of_ray)(given, by_row=by_row, batched=alike)
    columns = columns_of(given, alike=alike, unbatch=unbatch, ragged=config.fields is not None)
    if columns is not None:
        return Arrays(given, columns, unbatch=unbatch, chunked=alike and not unbatch)
    return (DataLoaderSource if owned(given) is not None else Iterable)(given, unbatch=unbatch)


def _arrow(given: Any, of_ray: bool) -> type[Arrow]:
    """Return the kind of source that reads Arrow data. Raises `ConfigError` without pyarrow."""
    try:
        from pyecho.source.arrow import Arrow
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the source ({type(given).__name__}) holds Arrow data, which are read through pyarrow "
            f"17 or newer, but: {error}; install it (pip install pyarrow), or pass arrays or lists"
        ) from error
    if not of_ray:
        return Arrow
    from pyecho.source.ray import RayData

    return RayData


def _check(given: Any) -> None:
    """Raise `ConfigError` if the source cannot be iterated or would yield something unexpected."""
    kind = type(given).__name__
    if isinstance(given, np.generic) or (is_array(given) and given.ndim == 0):
        raise ConfigError("the source is an array of no axes; its first axis must count the items")
    if isinstance(given, str | bytes):
        raise ConfigError(
            f"the source is a {kind}, whose items would be its characters; pass what yields one "
            "example or batch after the other, such as a list of dicts"
        )
    if all(callable(getattr(given, name, None)) for name in ("collect", "collect_schema")):
        raise ConfigError(f"the source is a {kind}, a query; pass what its .collect() returns")
    for names, rows in _TABLES:
        if not is_arrow(given) and all(hasattr(given, name) for name in ("columns", *names)):
            raise ConfigError(
                f"the source is a {kind}, whose items would be its columns, not its rows; pass "
                f"{rows}"
            )
    iterated = any(has_special(given, name) for name in ("__iter__", "__getitem__"))
    if not iterated and not is_arrow(given):
        hint = "; call it and pass what it returns" if callable(given) else ""
        raise ConfigError(
            "the source must be iterable (a list, an array, a generator, a DataLoader), got "
            f"{kind}{hint}"
        )


_TABLES = (
    (
        ("iterrows",),  # pandas
        "its .to_numpy(), .to_dict('records') for a list of dicts, or for reading column by column "
        "pyarrow.Table.from_pandas(df, preserve_index=False), where each NaN is a null",
    ),
    (("iter_rows", "to_dicts"), "its .to_numpy(), or .to_dicts() for a list of dicts"),  # polars
    (("to_pylist",), "its .to_pylist(), a list of dicts"),  # pyarrow
)
"""Attributes of data frames and tables, besides ``columns``, and how to get their rows."""
