"""webdataset: shards of tar files."""

import pytest

wds = pytest.importorskip("webdataset")
np = pytest.importorskip("numpy")

from ecosystem import check_epochs, check_states

import pyecho

# A pass that is left in the middle leaves its file to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*FileIO:pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def shards(tmp_path):
    for shard in range(4):
        with wds.TarWriter(str(tmp_path / f"{shard}.tar")) as writer:
            for i in range(10 * shard, 10 * shard + 10):
                array = np.full((3, 2), i, np.float32)
                writer.write({"__key__": f"{i:04}", "x.npy": array, "y.cls": i})
    return str(tmp_path / "{0..3}.tar")


def examples(shards, **options):
    return wds.WebDataset(shards, shardshuffle=False, **options).decode().to_tuple("x.npy", "y.cls")


def test_epochs_and_states(shards):
    def echoed():
        return pyecho.EchoLoader(examples(shards), 2, batch_size=8)

    check_epochs(echoed, range(40))
    check_states(echoed)


def test_batches_of_a_web_loader(shards):
    pytest.importorskip("torch")
    from pyecho.torch import EchoLoader

    def echoed():
        source = wds.WebLoader(examples(shards).batched(5), batch_size=None, num_workers=2)
        return EchoLoader(source, 2, batch_size=8, unbatch=True)

    check_epochs(echoed, range(40))


def test_a_shuffle_without_a_seed_is_refused_and_one_with_a_seed_goes_on(shards):
    def echoed(**options):
        return pyecho.EchoLoader(
            examples(shards).shuffle(10, initial=10, **options), 2, batch_size=4
        )

    check_states(lambda: echoed(seed=1))
    with echoed() as loader:
        next(iter(loader))
        state = loader.state_dict()
    with echoed() as loader, pytest.raises(pyecho.CheckpointError, match="same in every process"):
        loader.load_state_dict(state)
        list(loader)
