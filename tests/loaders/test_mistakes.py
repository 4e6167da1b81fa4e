"""What newcomers are likely to get wrong, and what they are told."""

import collections
import dataclasses
import pathlib
import types

import numpy as np
import pytest
import torch

import pyecho
import pyecho.torch


@dataclasses.dataclass
class Pair:
    x: object
    y: object = 0


def opaque(value):
    return [
        Pair(value),
        collections.UserDict(x=value),
        types.MappingProxyType({"x": value}),
    ]


@pytest.mark.parametrize("item", opaque(torch.ones(2)), ids=lambda item: type(item).__name__)
def test_a_tensor_inside_an_object_is_watched(item):
    uses = iter(pyecho.EchoLoader([item], 2))
    used = next(uses)
    (used.x if isinstance(used, Pair) else used["x"]).mul_(2)
    with pytest.raises(pyecho.EchoMutated, match=r"item.*x.* was changed in place.*copy=True"):
        next(uses)


@pytest.mark.parametrize("unbatch", [False, True])
@pytest.mark.parametrize("item", opaque(np.ones(2)), ids=lambda item: type(item).__name__)
def test_an_object_with_arrays_is_not_an_example(item, unbatch):
    with pytest.raises(pyecho.ConfigError, match=r"not taken apart.*dict\(\)"):
        iter(pyecho.EchoLoader([item] * 3, 2, batch_size=2, unbatch=unbatch))


def test_an_object_without_arrays_travels_by_reference():
    where = pathlib.PurePath("a.png")
    items = [(1, where, Pair("text"))] * 2
    (batch,) = pyecho.EchoLoader(items, 1, batch_size=2)
    assert batch[1:] == ([where] * 2, [Pair("text")] * 2)


def test_dicts_of_other_kinds_stay_what_they_are():
    items = [
        collections.OrderedDict(x=np.arange(2)),
        collections.defaultdict(list, x=np.arange(2)),
        collections.Counter(x=1),
    ]
    emitted = list(pyecho.EchoLoader(items, 1))
    assert [type(item) for item in emitted] == [type(item) for item in items]
    assert emitted[1]["missing"] == []
    assert not emitted[0]["x"].flags.writeable
    assert items[0]["x"].flags.writeable


def test_batches_of_batches_are_warned_of():
    source = torch.utils.data.DataLoader(torch.arange(64.0), batch_size=32)
    with pytest.warns(UserWarning, match=r"yields batches \(of 32\).*unbatch=True"):
        pyecho.torch.EchoLoader(source, 2, batch_size=32)
    pyecho.torch.EchoLoader(source, 2, batch_size=32, unbatch=True)
    pyecho.torch.EchoLoader(source, 2)


def test_a_short_last_batch_hints_at_unbatch():
    source = [np.zeros((32, 8)), np.zeros((6, 8))]
    with pytest.raises(pyecho.SpecMismatch, match=r"\(32, 8\), got .*\(6, 8\).*unbatch=True"):
        list(pyecho.EchoLoader(source, 2, batch_size=2))
    with pytest.raises(pyecho.SpecMismatch) as raised:
        list(pyecho.EchoLoader([np.zeros((2, 8)), np.zeros((2, 7))], 2, batch_size=2))
    assert "unbatch" not in str(raised.value)


@pytest.mark.parametrize(
    "arguments",
    [{"factor": True}, {"shuffle_buffer": True}, {"batch_size": False}, {"seed": True}],
)
def test_a_bool_is_no_number(arguments):
    with pytest.raises(pyecho.ConfigError, match=r"got (True|False)"):
        pyecho.EchoLoader([1], **arguments)


def test_the_leaf_that_cannot_be_split_is_named():
    with pytest.raises(pyecho.ConfigError, match=r"item\['n'\]\[1\]: .*cannot split.* int"):
        iter(
            pyecho.EchoLoader(
                [{"x": np.ones((3, 2)), "n": (np.ones(3), 4)}], batch_size=2, unbatch=True
            )
        )


def test_a_loader_shows_what_it_is():
    loader = pyecho.EchoLoader([1, 2], 2.5, batch_size=4, shuffle_buffer=9)
    assert repr(loader) == (
        "pyecho.loader.EchoLoader(list, factor=2.5, batch_size=4, shuffle_buffer=9)"
    )
    assert repr(pyecho.torch.EchoLoader((1,))) == "pyecho.torch.EchoLoader(tuple, factor=2)"


def test_completion_shows_what_is_public():
    assert {"EchoLoader", "cuda", "torch"} <= set(dir(pyecho))
    assert not {"loader", "run", "numpy", "options"} & set(dir(pyecho))
