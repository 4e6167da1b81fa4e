"""The registry of other libraries: how to make a source of each, and its traits.

Each source has the examples 0 to 39, which the batches of its loader show as "y" or last.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ecosystem import example

import pyecho

ITEMS = 40
ROWS = {"x": np.arange(3 * ITEMS, dtype=np.float32).reshape(ITEMS, 3), "y": np.arange(ITEMS)}


@dataclass(frozen=True)
class Library:
    """A source that a library makes.

    Attributes
    ----------
    modules
        Modules that it needs, separated by blanks.
    source
        Takes these and a folder, and returns a source.
    options
        Further options of its loader.
    tensors
        Its loader is that of pyecho.torch.
    keeps
        Names of threads that the library starts once for the process.
    has_states
        The order of a new source is that of the last one, so a state goes on.
    """

    modules: str
    source: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)
    tensors: bool = False
    keeps: tuple[str, ...] = ()
    has_states: bool = True

    def loader(self, folder: Any) -> Any:
        """Return a loader of two uses over a new source."""
        modules = map(importlib.import_module, self.modules.split())
        return echoed(self.source(*modules, folder), tensors=self.tensors, **self.options)


def echoed(source: Any, *, tensors: bool = False, **options: Any) -> Any:
    module = importlib.import_module("pyecho.torch") if tensors else pyecho
    return module.EchoLoader(source, 2, batch_size=8, **options)


SPLIT: dict[str, Any] = {"options": {"unbatch": True}}
TENSORS: dict[str, Any] = SPLIT | {"tensors": True}
SHUFFLED = {"num_workers": 2, "shuffle": True}

# ---------------------------------------------------------------- loaders of PyTorch


def data_loader(torch: Any, kind: Any = None, **options: Any) -> Any:
    dataset = torch.utils.data.TensorDataset(torch.arange(40.0)[:, None], torch.arange(ITEMS))
    return (kind or torch.utils.data.DataLoader)(dataset, batch_size=5, **options)


def stateful_loader(torch: Any, stateful: Any, **options: Any) -> Any:
    return data_loader(torch, stateful.StatefulDataLoader, **options)


def mapped_nodes(nodes: Any, _: Any) -> Any:
    node = nodes.IterableWrapper(range(ITEMS))
    node = nodes.ParallelMapper(node, lambda i: {"x": float(i), "y": i}, 2, method="thread")
    return nodes.Loader(nodes.Prefetcher(node, 4))


def batches_of_nodes(nodes: Any, _: Any) -> Any:
    starts = range(0, ITEMS, 5)
    batches = [{"x": np.zeros((5, 2)), "y": np.arange(start, start + 5)} for start in starts]
    return nodes.Loader(nodes.IterableWrapper(batches))


STATEFUL = "torch torchdata.stateful_dataloader"
PYTORCH = {
    "dataloader": Library("torch", lambda torch, _: data_loader(torch), **TENSORS),
    "dataloader, workers": Library(
        "torch", lambda torch, _: data_loader(torch, **SHUFFLED), has_states=False, **TENSORS
    ),
    "dataloader, persistent": Library(
        "torch",
        lambda torch, _: data_loader(torch, num_workers=1, persistent_workers=True),
        **TENSORS,
    ),
    "stateful_dataloader": Library(
        STATEFUL, lambda torch, stateful, _: stateful_loader(torch, stateful), **TENSORS
    ),
    "stateful_dataloader, workers": Library(
        STATEFUL,
        lambda torch, stateful, _: stateful_loader(torch, stateful, num_workers=2),
        **TENSORS,
    ),
    "stateful_dataloader, shuffled": Library(
        STATEFUL,
        lambda torch, stateful, _: stateful_loader(torch, stateful, **SHUFFLED),
        has_states=False,
        **TENSORS,
    ),
    "torchdata_nodes": Library("torchdata.nodes", mapped_nodes),
    "torchdata_nodes, batches": Library("torchdata.nodes", batches_of_nodes, **SPLIT),
}

# ---------------------------------------------------------------- tables


def numbers(pa: Any) -> Any:
    return pa.table({"x": [float(i) for i in range(ITEMS)], "y": range(ITEMS)})


def parquet_file(pa: Any, parquet: Any, folder: Any) -> Any:
    x = pa.FixedSizeListArray.from_arrays(pa.array(ROWS["x"].ravel()), 3)
    path = folder / "rows.parquet"
    parquet.write_table(pa.table({"x": x, "y": ROWS["y"]}), path, row_group_size=10)
    return path


def lance_dataset(pa: Any, lance: Any, folder: Any) -> Any:
    path = str(folder / "rows.lance")
    lance.write_dataset(numbers(pa), path, max_rows_per_group=10, mode="overwrite")
    return lance.dataset(path)


QUERY = "SELECT y, y::DOUBLE AS x FROM range(40) t(y) ORDER BY y"
TABLES = {
    "pyarrow, file": Library(
        "pyarrow pyarrow.parquet",
        lambda pa, parquet, folder: parquet.ParquetFile(parquet_file(pa, parquet, folder)),
    ),
    "pyarrow, dataset": Library(
        "pyarrow pyarrow.parquet pyarrow.dataset",
        lambda pa, parquet, datasets, folder: datasets.dataset(parquet_file(pa, parquet, folder)),
    ),
    "tables, polars": Library(
        "pyarrow polars", lambda pa, polars, _: polars.DataFrame(numbers(pa))
    ),
    "tables, duckdb": Library("duckdb", lambda duckdb, _: duckdb.sql(QUERY)),
    "tables, lance": Library("pyarrow lance", lance_dataset),
    "tables, daft": Library("pyarrow daft", lambda pa, daft, _: daft.from_arrow(numbers(pa))),
}

# ---------------------------------------------------------------- datasets, Grain, SPDL, tf.data


def dataset_of(datasets: Any) -> Any:
    return datasets.Dataset.from_dict(ROWS).with_format("numpy")


def labels_of(datasets: Any, form: Any) -> Any:
    return dataset_of(datasets).select_columns("y").with_format(form)


def shards_of(datasets: Any, buffer: int | None = None) -> Any:
    shards = dataset_of(datasets).to_iterable_dataset(num_shards=4)
    return shards if buffer is None else shards.shuffle(seed=1, buffer_size=buffer)


def grain_items(grain: Any) -> Any:
    return grain.MapDataset.range(ITEMS).map(example)


def grain_loader(grain: Any, workers: int) -> Any:
    return grain.DataLoader(
        data_source=list(map(example, range(ITEMS))),
        sampler=grain.samplers.IndexSampler(ITEMS, num_epochs=1, seed=1, shuffle=True),
        operations=[grain.transforms.Batch(5)],
        worker_count=workers,
    )


def spdl_loader(spdl: Any, _: Any) -> Any:
    def load(i: int) -> Any:
        return np.full(3, i, np.float32), i

    return spdl.DataLoader(range(ITEMS), preprocessor=load, num_threads=2, output_order="input")


def tf_dataset(tf: Any, _: Any) -> Any:
    return tf.data.Dataset.from_tensor_slices(ROWS)


TQDM: dict[str, Any] = {"keeps": ("tqdm",)}
POOL: dict[str, Any] = SPLIT | {"keeps": ("Thread-",)}  # which ends with the process
DATASETS = {
    "datasets": Library("datasets", lambda datasets, _: dataset_of(datasets), **TQDM),
    "datasets, no format": Library("datasets", lambda it, _: labels_of(it, None), **TQDM),
    "datasets, tensors": Library(
        "datasets torch", lambda datasets, torch, _: labels_of(datasets, "torch"), **TQDM
    ),
    "datasets, batches": Library(
        "datasets", lambda datasets, _: dataset_of(datasets).batch(5), **TQDM, **SPLIT
    ),
    "datasets, stream": Library("datasets", lambda datasets, _: shards_of(datasets), **TQDM),
    "datasets, shuffled stream": Library(
        "datasets", lambda datasets, _: shards_of(datasets, 10), has_states=False, **TQDM
    ),
    # With a larger buffer its items would be lost, as datasets says when it loads the state.
    "datasets, shuffled shards": Library(
        "datasets", lambda datasets, _: shards_of(datasets, 1), {"shuffle_buffer": 10}, **TQDM
    ),
    "grain, map": Library("grain", lambda grain, _: grain_items(grain).shuffle(seed=1)),
    "grain, iter": Library("grain", lambda grain, _: grain_items(grain).to_iter_dataset()),
    "grain, batches": Library(
        "grain", lambda grain, _: grain_items(grain).to_iter_dataset().batch(5), **SPLIT
    ),
    "grain, loader": Library("grain", lambda grain, _: grain_loader(grain, 0), **POOL),
    "grain, loader of 1": Library("grain", lambda grain, _: grain_loader(grain, 1), **POOL),
    "spdl": Library("spdl.dataloader", spdl_loader),
    "tf_data": Library("tensorflow", tf_dataset),
    "tf_data, batches": Library(
        "tensorflow", lambda tf, _: tf_dataset(tf, _).batch(5).prefetch(2), **SPLIT
    ),
}

# ---------------------------------------------------------------- shards on a disk


def lit_dataset(litdata: Any, folder: Any) -> Any:
    if not any(folder.iterdir()):
        inputs = list(range(ITEMS))
        litdata.optimize(
            fn=example, inputs=inputs, output_dir=str(folder), chunk_size=10, num_workers=1
        )
    return litdata.StreamingDataset(str(folder))


def mosaic_dataset(streaming: Any, folder: Any, rows: int = 1) -> Any:
    local = folder / "mds"
    if not local.exists():
        columns = {"x": "ndarray:float32:3", "y": "int"}
        with streaming.MDSWriter(out=str(local), columns=columns) as writer:
            for i in range(ITEMS):
                writer.write(example(i))
    streaming.base.util.clean_stale_shared_memory()
    return streaming.StreamingDataset(local=str(local), batch_size=rows, shuffle=False)


def web_dataset(wds: Any, folder: Any) -> Any:
    for shard in range(4):
        with wds.TarWriter(str(folder / f"{shard}.tar")) as writer:
            for i in range(10 * shard, 10 * shard + 10):
                array = np.full((3, 2), i, np.float32)
                writer.write({"__key__": f"{i:04}", "x.npy": array, "y.cls": i})
    source = wds.WebDataset(str(folder / "{0..3}.tar"), shardshuffle=False)
    return source.decode().to_tuple("x.npy", "y.cls")


def web_loader(wds: Any, _: Any, folder: Any) -> Any:
    return wds.WebLoader(web_dataset(wds, folder).batched(5), batch_size=None, num_workers=2)


SHARDS = {
    "litdata": Library(
        "litdata",
        lambda litdata, at: litdata.StreamingDataLoader(lit_dataset(litdata, at), batch_size=5),
        **TENSORS,
    ),
    "streaming": Library("streaming", mosaic_dataset, tensors=True),
    "streaming, loader": Library(
        "streaming",
        lambda it, folder: it.StreamingDataLoader(mosaic_dataset(it, folder, 5), batch_size=5),
        {"unbatch": True, "shuffle_buffer": 6, "prefetch": 1},
        tensors=True,
    ),
    "webdataset": Library("webdataset", web_dataset),
    "webdataset, shuffled": Library(
        "webdataset", lambda wds, at: web_dataset(wds, at).shuffle(10, initial=10, seed=1)
    ),
    "webdataset, loader": Library("webdataset torch", web_loader, has_states=False, **TENSORS),
}
LIBRARIES: dict[str, Library] = PYTORCH | TABLES | DATASETS | SHARDS
"""By name, which begins with that of its requirements."""
