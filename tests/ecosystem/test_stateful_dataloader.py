"""torchdata's StatefulDataLoader goes on by its own state."""

import pytest

torch = pytest.importorskip("torch")
stateful = pytest.importorskip("torchdata.stateful_dataloader")

from ecosystem import check_epochs, check_states

from pyecho.torch import EchoLoader

# torchdata 0.11 calls what newer releases of PyTorch warn of.
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

DATASET = torch.utils.data.TensorDataset(torch.arange(40.0)[:, None], torch.arange(40))


def echoed(**options):
    source = stateful.StatefulDataLoader(DATASET, batch_size=5, **options)
    return EchoLoader(source, 2, batch_size=8, unbatch=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_epochs_and_states(workers):
    check_epochs(lambda: echoed(num_workers=workers, shuffle=True), range(40))
    check_states(lambda: echoed(num_workers=workers))
