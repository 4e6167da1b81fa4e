"""Warnings point to the code that uses pyecho, however deep inside pyecho they are given."""

import sys
import threading
import warnings
from collections import deque
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pyecho
from pyecho.run.context import CallerContext
from pyecho.warn import warn

INSIDE = Path(pyecho.__file__).parent / "run" / "inside.py"
names = {"warn": warn}
exec(compile("def warn_inside(*arguments): warn(*arguments)", str(INSIDE), "exec"), names)
warn_inside = names["warn_inside"]


def test_warn_names_the_first_line_outside_of_pyecho():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_inside("too many", ResourceWarning)
        line = sys._getframe().f_lineno - 1
    assert (found[0].filename, found[0].lineno, found[0].category) == (
        __file__,
        line,
        ResourceWarning,
    )


def test_warn_is_given_once_for_each_line_outside():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(3):
            warn_inside("once")
        warn_inside("once")
    assert [str(warning.message) for warning in found] == ["once", "once"]


def test_warn_in_a_thread_without_a_line_outside_is_a_warning_of_pyechos():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        thread = threading.Thread(target=warn, args=("in a thread",))
        thread.start()
        thread.join()
    assert Path(found[0].filename).parent == Path(pyecho.__file__).parent


def places_of(warn_somehow):
    """Return the files and categories of the warnings that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_somehow()
    return [(warning.filename, warning.category) for warning in found]


def test_warn_in_the_context_of_a_caller_names_the_line_of_the_caller():
    def in_a_thread():
        context = CallerContext()
        thread = threading.Thread(target=context.run, args=(partial(warn_inside, "there"), print))
        thread.start()
        thread.join()

    assert places_of(in_a_thread) == [(__file__, UserWarning)]


HOARDED = np.zeros((200, 512))


@pytest.mark.parametrize(
    "options",
    [
        {"threads": 0},
        {"threads": 1},
        {"progress": True},
        {"augment": lambda batch, rng: batch},
        {"augment": lambda batch, rng: batch, "augment_workers": 3},
    ],
    ids=["no thread", "a thread", "progress", "augment", "augment workers"],
)
def test_resource_warning_of_growth_names_the_line_of_the_consumer(options):
    def hoard():
        list(pyecho.EchoLoader(HOARDED, 2, batch_size=4, shuffle_buffer=0, **options))

    assert places_of(hoard) == [(__file__, ResourceWarning)]


def test_resource_warning_of_an_inner_loader_names_the_line_of_the_consumer():
    def hoard():
        inner = pyecho.EchoLoader(HOARDED, 1, batch_size=4, shuffle_buffer=0, threads=1)
        list(pyecho.EchoLoader(iter(inner), 1))

    assert places_of(hoard) == [(__file__, ResourceWarning)]


class LongerThanTold(list):
    def __len__(self):
        return 7

    def __iter__(self):
        return iter(range(9))


def left_half_way():
    loader = pyecho.EchoLoader(iter(range(9)), 2)
    next(iter(loader))
    next(iter(loader))


@pytest.mark.parametrize(
    "warn_somehow",
    [
        lambda: list(pyecho.EchoLoader([], 2)),
        lambda: list(pyecho.EchoLoader([1], 1, batch_size=4, drop_last=True)),
        lambda: deque(pyecho.EchoLoader(LongerThanTold(), 1, batch_size=2, pad_last=True), 0),
        left_half_way,
    ],
    ids=["empty", "no batch", "longer", "left half-way"],
)
def test_warnings_of_a_loader_name_the_line_outside_of_pyecho(warn_somehow):
    assert places_of(warn_somehow) == [(__file__, RuntimeWarning)]


def test_warnings_of_a_loader_in_a_wrapper_name_the_line_of_the_wrapper():
    names = {"loader": pyecho.EchoLoader([], 2, progress=True)}
    exec(compile("def wrapper(): return list(loader)", "wrapper.py", "exec"), names)
    assert places_of(names["wrapper"]) == [("wrapper.py", RuntimeWarning)]
