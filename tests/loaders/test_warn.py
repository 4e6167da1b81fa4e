"""Warnings point to the code that uses pyecho, however deep inside pyecho they are given."""

import warnings
from collections import deque

import numpy as np
import pytest

import pyecho


def places_of(warn_somehow):
    """Return the files and categories of the warnings that a call gives."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn_somehow()
    return [(warning.filename, warning.category) for warning in found]


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
