"""torch.compile: batches of one shape are compiled once."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize(
    "options",
    [{"drop_last": True}, {"pad_last": True}, {"steps_per_epoch": 5}],
    ids=["drop_last", "pad_last", "steps_per_epoch"],
)
def test_step_is_compiled_once(options):
    torch._dynamo.reset()
    counter = CompileCounter()
    step = torch.compile(lambda batch: (batch * 2.0).sum(), backend=counter)
    loader = EchoLoader(torch.randn(50, 3), 2, batch_size=16, **options)
    for _ in range(3):
        for batch in loader:
            step(batch)
    assert counter.frame_count == 1
