"""torch.utils.data.DataLoader: workers, also persistent ones, and pinned memory."""

import pytest

torch = pytest.importorskip("torch")

from ecosystem import check_epochs, check_states

from pyecho.torch import EchoLoader

DATASET = torch.utils.data.TensorDataset(torch.arange(40.0)[:, None], torch.arange(40))


def echoed(**options):
    source = torch.utils.data.DataLoader(DATASET, batch_size=5, **options)
    return EchoLoader(source, 2, batch_size=8, unbatch=True)


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}]
)
def test_epochs(options):
    assert len(echoed(**options)) == 10
    check_epochs(lambda: echoed(**options, shuffle=True), range(40))


def test_states():
    check_states(echoed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinning needs a CUDA device")
def test_pinned_batches():
    check_epochs(lambda: echoed(num_workers=2, pin_memory=True), range(40))
