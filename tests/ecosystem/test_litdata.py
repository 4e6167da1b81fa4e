"""LitData: a StreamingDataset over chunks, and its StreamingDataLoader."""

import pytest

litdata = pytest.importorskip("litdata")

from ecosystem import check_epochs, check_states, example

from pyecho.torch import EchoLoader


@pytest.fixture(scope="module")
def chunks(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("litdata"))
    litdata.optimize(
        fn=example, inputs=list(range(40)), output_dir=folder, chunk_size=10, num_workers=1
    )
    return folder


def test_dataset_is_its_own_iterator(chunks):
    loader = EchoLoader(litdata.StreamingDataset(chunks), 2, batch_size=8)
    for _ in range(2):
        assert sorted(int(y) for batch in loader for y in batch["y"]) == sorted([*range(40)] * 2)


def test_data_loader(chunks):
    def echoed(workers=0):
        source = litdata.StreamingDataset(chunks)
        loader = litdata.StreamingDataLoader(source, batch_size=5, num_workers=workers)
        return EchoLoader(loader, 2, batch_size=8, unbatch=True)

    check_epochs(echoed, range(40))
    check_states(echoed)
    found = [int(y) for batch in echoed(workers=2) for y in batch["y"]]
    assert sorted(found) == sorted([*range(40)] * 2)
