"""SPDL: its DataLoader runs functions in threads."""

import numpy as np
import pytest

spdl = pytest.importorskip("spdl.dataloader")

from ecosystem import check_epochs, check_states

import pyecho


def echoed():
    source = spdl.DataLoader(
        range(40),
        preprocessor=lambda i: (np.full(3, i, np.float32), i),
        num_threads=2,
        output_order="input",
    )
    return pyecho.EchoLoader(source, 2, batch_size=8)


def test_epochs_and_states():
    check_epochs(echoed, range(40))
    check_states(echoed)
