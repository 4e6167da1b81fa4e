"""Sources of other libraries: whole epochs, nothing left behind, and states that go on."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest
from ecosystem import check_epochs, check_states
from libraries import (
    ITEMS,
    LIBRARIES,
    data_loader,
    dataset_of,
    echoed,
    lit_dataset,
    shards_of,
    tf_dataset,
    web_dataset,
)

import pyecho

pytestmark = [
    # torchdata 0.11 calls what newer releases of PyTorch warn of.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    # The collation of Streaming makes tensors of read-only arrays.
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning"),
    # A pass of webdataset that is left in the middle leaves its file to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*FileIO:pytest.PytestUnraisableExceptionWarning"),
]


def installed(name):
    """Return a library; skip the test where it is not there."""
    for module in LIBRARIES[name].modules.split():
        pytest.importorskip(module)
    return LIBRARIES[name]


@pytest.mark.parametrize("name", LIBRARIES)
def test_epochs_are_whole_and_leave_nothing_behind(name, tmp_path):
    library = installed(name)
    check_epochs(lambda: library.loader(tmp_path), range(ITEMS), keeps=library.keeps)


@pytest.mark.parametrize("name", [name for name in LIBRARIES if LIBRARIES[name].has_states])
def test_states_go_on(name, tmp_path):
    library = installed(name)
    check_states(lambda: library.loader(tmp_path))


@pytest.mark.parametrize("name", ["dataloader", "grain, map", "datasets"])
def test_length_is_known(name, tmp_path):
    assert len(installed(name).loader(tmp_path)) == 2 * ITEMS // 8


# ---------------------------------------------------------------- what is special


def test_pinned_batches_of_a_dataloader():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("pinning needs a CUDA device")

    def loader():
        source = data_loader(torch, num_workers=2, pin_memory=True)
        return echoed(source, tensors=True, unbatch=True)

    check_epochs(loader, range(ITEMS))


def test_shuffled_stream_of_datasets_has_another_order_in_each_epoch(tmp_path):
    with installed("datasets, shuffled stream").loader(tmp_path) as loader:
        first, second = ([batch["y"].tolist() for batch in loader] for _ in range(2))
    assert first != second


@pytest.mark.parametrize("streaming", [False, True])
def test_ranks_share_the_items_of_datasets(streaming):
    datasets = pytest.importorskip("datasets")
    from datasets.distributed import split_dataset_by_node

    source = shards_of(datasets) if streaming else dataset_of(datasets)
    found = []
    for rank in range(2):
        with echoed(split_dataset_by_node(source, rank, 2)) as loader:
            found += [int(y) for batch in loader for y in batch["y"]]
    assert sorted(found) == sorted([*range(ITEMS)] * 2)


def test_dataset_of_litdata_is_its_own_iterator(tmp_path):
    loader = echoed(lit_dataset(pytest.importorskip("litdata"), tmp_path), tensors=True)
    for _ in range(2):
        assert sorted(int(y) for batch in loader for y in batch["y"]) == sorted([*range(ITEMS)] * 2)


def test_numpy_iterator_of_tf_data(tmp_path):
    source = tf_dataset(pytest.importorskip("tensorflow"), tmp_path)
    loader = echoed(source.as_numpy_iterator())
    assert sum(len(batch["y"]) for batch in loader) == 2 * ITEMS


def test_shuffle_of_webdataset_without_a_seed_is_refused(tmp_path):
    source = web_dataset(pytest.importorskip("webdataset"), tmp_path).shuffle(10, initial=10)
    with echoed(source) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with echoed(source) as loader, pytest.raises(pyecho.CheckpointError, match="in every process"):
        loader.load_state_dict(state)
        list(loader)


def test_later_pass_of_a_stateful_data_loader_goes_on_in_its_own_order():
    torch = pytest.importorskip("torch")
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader():
        items = torch.arange(12)
        sampler = torch.utils.data.distributed.DistributedSampler(items, 1, 0)
        source = stateful.StatefulDataLoader(items, batch_size=3, sampler=sampler)
        return pyecho.EchoLoader(source, 1, epochs=2, threads=0)

    whole, left, again = loader(), loader(), loader()
    passes = [[each.tolist() for each in whole] for _ in range(2)]
    list(left)
    found = [next(iter(left)).tolist()]
    again.load_state_dict(left.state_dict())
    assert found + [each.tolist() for each in again] == passes[1]
