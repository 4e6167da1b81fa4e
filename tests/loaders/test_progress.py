"""progress=True shows a bar for the filling pool, then one for the epoch."""

import builtins
import gc
import sys

import numpy as np
import pytest
from drivers import drivers, flat, loader_of, waiting_drivers

import pyecho

tqdm = pytest.importorskip("tqdm")


@drivers
@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_bar_counts_the_batches_of_the_epoch(capsys, driver, batch_size):
    arguments = {"batch_size": batch_size, "shuffle_buffer": 7, "seed": 3}
    loader = loader_of(driver, range(40), progress=True, **arguments)
    plain = loader_of(driver, range(40), **arguments)
    for _ in range(2):
        assert flat(loader) == flat(plain)
        shown = capsys.readouterr().err
        assert f"{80 // (batch_size or 1)}{'/' if driver == 'in memory' else 'batch'}" in shown
        assert "filling" in shown
        assert shown.index("filling") < shown.index("echoing")
    assert not tqdm.tqdm._instances


def test_the_filling_counts_the_rows_of_batches(capsys):
    source = np.split(np.arange(40), 4)
    loader = pyecho.EchoLoader(
        source, 2, batch_size=4, shuffle_buffer=20, unbatch=True, progress=True
    )
    assert len(flat(loader)) == 80
    assert "20/20" in capsys.readouterr().err


@waiting_drivers
def test_abandoning_it_leaves_nothing(capsys, driver):
    loader = loader_of(driver, range(40), progress=True, batch_size=4, shuffle_buffer=20)
    batches = iter(loader)
    next(batches)
    batches.close()
    iter(loader)
    loader.close()
    assert not tqdm.tqdm._instances
    capsys.readouterr()


def test_a_configuration_error_leaves_no_bar(capsys):
    loader = pyecho.EchoLoader(
        np.arange(40), batch_size=4, shuffle_buffer=20, max_bytes=1, progress=True
    )
    with pytest.raises(pyecho.ConfigError):
        next(iter(loader))
    gc.collect()  # the traceback
    assert not tqdm.tqdm._instances
    capsys.readouterr()


def test_a_missing_tqdm_is_named_with_its_remedy(monkeypatch):
    original = builtins.__import__

    def without_tqdm(name, *args, **kwargs):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    monkeypatch.delitem(sys.modules, "tqdm.auto", raising=False)
    with pytest.raises(pyecho.ConfigError, match=r"needs tqdm: pip install tqdm"):
        pyecho.EchoLoader([1], progress=True)
