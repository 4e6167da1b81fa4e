"""progress=True shows a bar for the filling pool, then one for the epoch."""

import builtins
import gc
import sys
import threading

import numpy as np
import pytest

import pyecho

tqdm = pytest.importorskip("tqdm")


def loader_of(source=None, **arguments):
    source = np.arange(40) if source is None else source
    return pyecho.EchoLoader(source, 2, progress=True, **arguments)


@pytest.mark.parametrize("batch_size", [None, 4])
def test_the_bar_counts_the_batches_of_the_epoch(capsys, batch_size):
    batches = sum(1 for _ in loader_of(batch_size=batch_size))
    shown = capsys.readouterr().err
    assert "echoing" in shown
    assert f"{batches}/{batches}" in shown


def test_the_bar_goes_without_a_total_where_the_length_is_unknown(capsys):
    assert sum(1 for _ in loader_of(iter(range(10)))) == 20
    assert "20batch" in capsys.readouterr().err.replace(" ", "")


@pytest.mark.parametrize("unbatch", [False, True])
def test_the_filling_of_the_pool_is_shown_first(capsys, unbatch):
    source = np.split(np.arange(40), 4) if unbatch else np.arange(40)
    for _ in loader_of(source, batch_size=4, shuffle_buffer=20, unbatch=unbatch):
        pass
    shown = capsys.readouterr().err
    assert "filling" in shown
    assert shown.index("filling") < shown.index("echoing")


def test_output_is_the_same_with_and_without(capsys):
    arguments = {"shuffle_buffer": 7, "seed": 3}
    assert list(loader_of(**arguments)) == list(pyecho.EchoLoader(np.arange(40), 2, **arguments))
    capsys.readouterr()


def test_abandoning_it_leaves_nothing(capsys):
    batches = iter(loader_of(batch_size=4, shuffle_buffer=20))
    next(batches)
    batches.close()
    iter(loader_of(batch_size=4, shuffle_buffer=20))
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join()
    assert not tqdm.tqdm._instances
    capsys.readouterr()


def test_a_configuration_error_leaves_no_bar(capsys):
    with pytest.raises(pyecho.ConfigError):
        iter(loader_of(batch_size=4, shuffle_buffer=20, max_bytes=1))
    gc.collect()  # the traceback
    assert not tqdm.tqdm._instances
    capsys.readouterr()


def test_without_progress_nothing_is_printed(capsys):
    list(pyecho.EchoLoader(range(3)))
    assert capsys.readouterr() == ("", "")


def test_a_missing_tqdm_is_named_with_its_remedy(monkeypatch):
    original = builtins.__import__

    def without_tqdm(name, *args, **kwargs):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    monkeypatch.delitem(sys.modules, "tqdm.auto", raising=False)
    with pytest.raises(pyecho.ConfigError, match=r"needs tqdm: pip install tqdm"):
        loader_of()
