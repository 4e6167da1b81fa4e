"""Hugging Face datasets: formats, streaming, and the split among ranks."""

import numpy as np
import pytest

datasets = pytest.importorskip("datasets")

from datasets.distributed import split_dataset_by_node
from ecosystem import check_epochs, check_states

import pyecho


@pytest.fixture
def dataset():
    rows = {"x": np.arange(120, dtype=np.float32).reshape(40, 3), "y": np.arange(40)}
    return datasets.Dataset.from_dict(rows).with_format("numpy")


def echoed(source, **options):
    return pyecho.EchoLoader(source, 2, batch_size=8, **options)


def test_epochs_and_states_of_a_dataset(dataset):
    assert len(echoed(dataset)) == 10
    assert next(iter(echoed(dataset)))["x"].shape == (8, 3)
    check_epochs(lambda: echoed(dataset), range(40), keeps=["tqdm"])
    check_states(lambda: echoed(dataset))


@pytest.mark.parametrize("form", [None, "torch"])
def test_other_formats(dataset, form):
    if form == "torch":
        pytest.importorskip("torch")
    source = dataset.select_columns("y").with_format(form)
    check_epochs(lambda: echoed(source), range(40))


def test_whole_batches_of_rows(dataset):
    check_epochs(lambda: echoed(dataset.batch(5), unbatch=True), range(40), keeps=["tqdm"])


def test_streaming_goes_on_by_its_own_state(dataset):
    def stream():
        return echoed(dataset.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=10))

    check_epochs(stream, range(40))
    check_states(lambda: echoed(dataset.to_iterable_dataset(num_shards=4)))


def test_shuffled_shards_go_on_exactly(dataset):
    """With a larger buffer its items would be lost, as datasets says when it loads the state."""
    shards = dataset.to_iterable_dataset(num_shards=4)
    check_states(lambda: echoed(shards.shuffle(seed=1, buffer_size=1), shuffle_buffer=10))


def test_shuffled_stream_has_another_order_in_each_epoch(dataset):
    stream = dataset.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=10)
    loader = pyecho.EchoLoader(stream, 1, batch_size=40, shuffle_buffer=1)
    (first,), (second,) = ([batch["y"].tolist() for batch in loader] for _ in range(2))
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize("streaming", [False, True])
def test_ranks_share_the_items(dataset, streaming):
    source = dataset.to_iterable_dataset(num_shards=4) if streaming else dataset
    found = []
    for rank in range(2):
        with echoed(split_dataset_by_node(source, rank, 2)) as loader:
            found += [int(y) for batch in loader for y in batch["y"]]
    assert sorted(found) == sorted([*range(40), *range(40)])
