"""Ray Data: datasets and shards of them. Ray Train: workers, which see equally many batches."""

import json
import logging
import os
import runpy
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

import ecosystem
import pyarrow as pa
from ecosystem import check_epochs, check_states, example

import pyecho
import pyecho.torch

ROOT = Path(__file__).parents[2]
# Ray warns of parts of its own.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    memory = 200 * 2**20
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("cluster"))  # workers import from here before all else
    ray.init(
        num_cpus=3,
        include_dashboard=False,
        object_store_memory=memory,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(ecosystem.__file__).parent)}},
    )
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # which they cannot import
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.execution_options.preserve_order = True
    yield
    ray.shutdown()
    os.chdir(before)


@pytest.fixture(scope="module")
def dataset():
    return ray.data.from_items(list(map(example, range(40)))).materialize()


@pytest.mark.parametrize(
    "of",
    [
        lambda dataset: dataset,
        lambda dataset: dataset.iterator(),
        lambda dataset: dataset.streaming_split(1)[0],
    ],
    ids=["dataset", "iterator", "shard"],
)
@pytest.mark.parametrize("face", [pyecho, pyecho.torch], ids=["numpy", "torch"])
def test_rows(dataset, of, face):
    def echoed():
        return face.EchoLoader(of(dataset), 2, batch_size=8)

    check_epochs(echoed, range(40), keeps=["ray", "Prefetcher"])
    check_states(echoed)


def test_dataset_in_the_store_has_a_length(dataset):
    assert len(pyecho.EchoLoader(dataset, 2, batch_size=8)) == 10
    with pytest.raises(TypeError, match="steps_per_epoch"):
        len(pyecho.EchoLoader(ray.data.range(40), 2, batch_size=8))


def test_batches_of_its_own(dataset):
    def echoed():
        batches = dataset.iter_batches(batch_size=5, batch_format="numpy")
        return pyecho.EchoLoader(batches, 2, batch_size=8, unbatch=True)

    check_epochs(echoed, range(40), keeps=["ray", "Prefetcher"])
    check_states(echoed)


def images(batch):
    """Make a chunk of a block."""
    label = batch["id"]
    return {"label": label, "image": np.broadcast_to(label[:, None, None], (len(label), 32, 32))}


def test_blocks_are_read_where_they_lie():
    dataset = ray.data.range(4000, override_num_blocks=4).map_batches(images, batch_size=500)
    dataset = dataset.materialize()  # 32 MB, 4 MB a chunk
    blocks, rows = pyecho.EchoLoader(dataset, 1), 0
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    tracemalloc.start()
    for block in blocks:
        rows += len(block["label"])
        assert (block["image"][:, 5, 7] == block["label"]).all()
        assert not block["image"].flags.writeable
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 4000
    assert pool.total_bytes_allocated() - before < 2**16 < rows * 32 * 32 * 8
    assert most < 2**21  # less than a chunk; Ray has objects of its own


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([{"x": 1j}, {"x": {}}], "column 'x' of the dataset holds pickled Python objects"),
        ([{"x": 1}, {"x": None}], "column 'x' is null in row 1"),
    ],
)
def test_columns_without_a_fixed_size_are_refused_by_name(rows, match):
    dataset = ray.data.from_items(rows, override_num_blocks=1)
    with pytest.raises(pyecho.ConfigError, match=match):
        list(pyecho.EchoLoader(dataset, 2, batch_size=2))


def test_tensors_of_several_shapes_come_as_data_and_shapes():
    tensors = [np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(4, 1)]
    dataset = ray.data.from_items([{"x": each} for each in tensors], override_num_blocks=1)
    (batch,) = pyecho.EchoLoader(dataset, 1, batch_size=2)
    found = [
        data.reshape(shape)
        for data, shape in zip(batch["x"]["data"], batch["x"]["shape"], strict=True)
    ]
    found.sort(key=lambda each: -each.size)  # the loader shuffles
    for one, other in zip(found, tensors, strict=True):
        np.testing.assert_array_equal(one, other)


def test_tensors_that_lack_are_refused_by_name(dataset):
    table = next(iter(dataset.iter_batches(batch_size=None, batch_format="pyarrow")))
    lacking = pa.table({"x": pa.nulls(2, table["x"].type)})
    with pytest.raises(pyecho.ConfigError, match="column 'x' of the dataset lacks tensors"):
        list(pyecho.EchoLoader(ray.data.from_arrow(lacking), 2, batch_size=2))


# ---------------------------------------------------------------- Ray Train


def iterate_uneven_shards(config):
    """Write how many rows the batches of two epochs have."""
    import ray.train

    from pyecho.torch import EchoLoader

    rank = ray.train.get_context().get_world_rank()
    group = runpy.run_path(config["group"])["RayGroup"]() if config["group"] else "auto"
    options = {"batch_size": 4, "shuffle_buffer": 8, "steps_per_epoch": 11}
    loader = EchoLoader(config["shards"][rank], 1.5, group=group, **options)
    rows = [[len(batch["y"]) for batch in loader] for _ in range(2)]
    Path(config["folder"], str(rank)).write_text(json.dumps(rows))


@pytest.mark.parametrize("group", ["", "examples/frameworks/ray_group.py"])
def test_uneven_shards_have_equally_many_batches(tmp_path, dataset, group):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    trainer = (DataParallelTrainer if group else TorchTrainer)(
        iterate_uneven_shards,
        train_loop_config={
            "shards": [dataset.limit(29).materialize(), dataset.limit(7).iterator()],
            "group": group and str(ROOT / group),
            "folder": str(tmp_path),
        },
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=str(tmp_path / "storage")),
    )
    trainer.fit()
    long, short = (json.loads((tmp_path / str(rank)).read_text()) for rank in range(2))
    assert [len(epoch) for epoch in long] == [len(epoch) for epoch in short]
    assert all(sum(epoch) >= 43 for epoch in long)


def test_training_goes_on_with_another_number_of_workers(tmp_path):
    train = runpy.run_path(str(ROOT / "examples/frameworks/train_ray.py"))["main"]
    whole = train(tmp_path / "whole", 2)
    again = train(tmp_path / "again", (1, 2), fails_at=15)
    alone = train(tmp_path / "alone", 1)
    for other in (again, alone):
        assert other["step"] == whole["step"] == 40
        for name, weights in whole["model"].items():
            np.testing.assert_allclose(other["model"][name], weights, rtol=1e-4, atol=1e-6)
