"""progress=True shows a bar for the filling pool, then one for the epoch."""

import gc
import sys

import numpy as np
import pytest
from drivers import drivers, flat, levels, loader_of
from waiting import wait_until

import pyecho

tqdm = pytest.importorskip("tqdm")


@drivers
@levels
def test_bar_counts_the_batches_of_the_epoch(capsys, driver, batch_size):
    arguments = {"batch_size": batch_size, "shuffle_buffer": 7, "seed": 3}
    loader = loader_of(driver, range(40), progress=True, **arguments)
    plain = loader_of(driver, range(40), **arguments)
    for _ in range(2):
        assert flat(loader) == flat(plain)
        shown = capsys.readouterr().err
        assert f"{80 // (batch_size or 1)}{'/' if driver == 'in memory' else 'batch'}" in shown
        assert "filling" in shown
        assert shown.index("filling") < shown.index("echoing")
        assert "fill=0%, R=" in shown  # at the end of the epoch
        assert "e=2.00, fresh=50%" in shown
    assert not tqdm.tqdm._instances


def test_filling_counts_the_rows_of_batches(capsys):
    source = np.split(np.arange(40), 4)
    loader = pyecho.EchoLoader(
        source, 2, batch_size=4, shuffle_buffer=20, unbatch=True, progress=True
    )
    assert len(flat(loader)) == 80
    assert "20/20" in capsys.readouterr().err


@drivers
def test_bar_goes_with_an_abandoned_iterator_and_an_error(driver):
    arguments = {"progress": True, "batch_size": 4, "shuffle_buffer": 20}
    loader = loader_of(driver, range(40), **arguments)
    batches = iter(loader)
    next(batches)
    batches.close()
    assert not tqdm.tqdm._instances
    with pytest.raises(pyecho.ConfigError):
        next(iter(loader_of(driver, range(40), max_bytes=1, **arguments)))
    gc.collect()  # the traceback
    wait_until(lambda: not tqdm.tqdm._instances)  # the thread that reads leaves the source


def test_error_after_some_batches_leaves_no_bar():
    batches = iter(pyecho.EchoLoader(map(int, [*"123456789x"]), 2, progress=True))
    with pytest.raises(ValueError, match="x"):
        for _ in batches:
            pass
    assert not tqdm.tqdm._instances


def test_missing_tqdm_is_named_with_its_remedy(monkeypatch):
    for name in ("tqdm", "tqdm.auto"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(pyecho.ConfigError, match=r"needs tqdm: pip install tqdm"):
        pyecho.EchoLoader([1], progress=True)
