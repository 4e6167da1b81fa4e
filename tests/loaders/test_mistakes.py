"""What newcomers are likely to get wrong, and what they are told."""

import collections

import numpy as np
import pytest
import torch

import pyecho
import pyecho.torch


def test_batches_of_batches_are_warned_of():
    source = torch.utils.data.DataLoader(torch.arange(64.0), batch_size=32)
    with pytest.warns(UserWarning, match=r"yields batches \(of 32\).*unbatch=True"):
        pyecho.torch.EchoLoader(source, 2, batch_size=32)
    pyecho.torch.EchoLoader(source, 2, batch_size=32, unbatch=True)
    pyecho.torch.EchoLoader(source, 2)


@pytest.mark.parametrize("length", [6, 40])
def test_examples_of_other_lengths_are_to_be_padded_or_cropped(length):
    source = [np.zeros((32, 8)), np.zeros((length, 8))]
    with pytest.raises(pyecho.SpecMismatch, match=r"pad or crop examples to one length") as raised:
        list(pyecho.EchoLoader(source, 2, batch_size=2))
    shorter = length < 32  # as the last batch of a source is
    assert ("pass unbatch=True" in str(raised.value)) == shorter
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
