"""MosaicML Streaming: a StreamingDataset over shards, and its StreamingDataLoader."""

import numpy as np
import pytest

streaming = pytest.importorskip("streaming")

from ecosystem import check_epochs, check_states

from pyecho.torch import EchoLoader

# Its collation makes tensors of read-only arrays.
pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable:UserWarning")


@pytest.fixture
def shards(tmp_path):
    columns = {"x": "ndarray:float32:3", "y": "int"}
    with streaming.MDSWriter(out=str(tmp_path / "mds"), columns=columns) as writer:
        for i in range(40):
            writer.write({"x": np.full(3, i, np.float32), "y": i})
    return str(tmp_path / "mds")


def test_dataset(shards):
    def echoed():
        streaming.base.util.clean_stale_shared_memory()
        source = streaming.StreamingDataset(local=shards, batch_size=1, shuffle=False)
        return EchoLoader(source, 2, batch_size=8)

    check_epochs(echoed, range(40))
    check_states(echoed)


def test_data_loader(shards):
    def echoed():
        streaming.base.util.clean_stale_shared_memory()
        source = streaming.StreamingDataset(local=shards, batch_size=5, shuffle=False)
        loader = streaming.StreamingDataLoader(source, batch_size=5)
        return EchoLoader(loader, 2, batch_size=8, unbatch=True, shuffle_buffer=6, prefetch=1)

    check_epochs(echoed, range(40))
    check_states(echoed)
