"""Sources: what may be one, what a pass over it yields, what is known of it before it is read."""

import types
from collections import namedtuple

import numpy as np
import pytest
import torch
from drivers import Iterated, flat, length_of, repeated
from members import Dataset, Sliced
from scripts import run
from torch.utils import data

import pyecho
import pyecho.torch

X, Y = np.arange(12.0).reshape(4, 3), np.arange(4)
Pair = namedtuple("Pair", "x y")


class MapStyleSource(data.Dataset):
    """Any index is answered, so only its length ends it."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


class OldProtocol:
    def __getitem__(self, index):
        if index == 4:
            raise IndexError
        return index


class NoLength(OldProtocol):
    def __len__(self):
        raise TypeError


class LengthToDo(OldProtocol):
    def __len__(self):
        raise NotImplementedError


class OwnList(list):
    def __iter__(self):
        yield from range(4)


class Stream(data.IterableDataset):
    def __iter__(self):
        worker = data.get_worker_info()
        start, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(range(start, 4, step))


# ---------------------------------------------------------------- what a pass yields


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    ("make", "items"),
    [
        (lambda: [0, 1, 2, 3], 4),
        (lambda: range(4), 4),
        (lambda: dict.fromkeys(range(4)).keys(), 4),
        (lambda: torch.arange(4), 4),
        (MapStyleSource, 4),
        (lambda: OwnList(range(4)), 4),
        (lambda: data.DataLoader(range(4), batch_size=None), 4),
        (lambda: data.DataLoader(Stream(), batch_size=None), None),
        (lambda: iter(range(4)), None),
        (OldProtocol, None),
        (NoLength, None),
        (LengthToDo, None),
        (Stream, None),
    ],
)
def test_sources_of_any_kind_yield_their_items_and_tell_their_number(make, items, batch_size):
    loader = pyecho.EchoLoader(make(), 1, batch_size=batch_size, shuffle_buffer=0)
    assert length_of(loader) == (items and items // (batch_size or 1))
    assert flat(loader) == [0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("dataset", [MapStyleSource, Stream])
@pytest.mark.parametrize("way", ["batches", "examples", "split"])
def test_data_loaders_are_sources(workers, dataset, way):
    size = None if way == "examples" else 3
    loader = pyecho.torch.EchoLoader(
        data.DataLoader(dataset(), batch_size=size, num_workers=workers),
        2,
        batch_size=None if way == "batches" else 3,
        unbatch=way == "split",
    )
    assert sorted(flat(batch for batches in loader for batch in batches)) == repeated(range(4))


def test_torch_is_not_imported_for_sources_and_batches_of_arrays():
    output = run(
        """
        source = np.arange(3), np.arange(3)
        loader = pyecho.EchoLoader(source, 1, batch_size=2, augment=lambda batch, rng: batch)
        print(len(list(loader)), "torch" in sys.modules)
        """
    )
    assert output == "2 False\n"


# ---------------------------------------------------------------- what is known beforehand


def sampled(**arguments):
    return data.DataLoader(MapStyleSource(), **arguments)


@pytest.mark.parametrize(
    "source",
    [
        np.zeros((5, 4, 3)),
        (torch.zeros(5, 4, 3), np.zeros((5, 4))),
        [X, X[:3]],
        ({"x": X, "n": Y}, {"x": X[:1], "n": Y[:1]}),
        [(torch.tensor(Y), ["name"] * 4)],
        sampled(batch_size=3, shuffle=True),
        sampled(batch_size=3, drop_last=True),
        sampled(batch_size=3, sampler=[3, 2], drop_last=True),
        sampled(batch_sampler=[[0, 1, 2], [3], [1, 0]]),
        sampled(batch_sampler=data.BatchSampler(range(3), 2, False)),
    ],
)
@pytest.mark.filterwarnings("ignore:the source .* yielded nothing")
def test_unbatch_knows_the_number_of_examples(source):
    loader = pyecho.EchoLoader(source, 1, batch_size=1, unbatch=True)
    assert len(loader) == sum(1 for _ in loader)


def test_epoch_is_told_once_to_all_that_ask_for_it():
    told = []

    class Told:
        def set_epoch(self, epoch):
            told.append((self, epoch))

    class Everything(Told, Iterated):
        pass

    source = Everything([1])
    source.sampler, source.batch_sampler, source.dataset = Told(), Told(), Told()
    source.batch_sampler.sampler = source.sampler
    pyecho.EchoLoader(source).set_epoch(3)
    assert told == [
        (each, 3) for each in (source, source.sampler, source.batch_sampler, source.dataset)
    ]
    sampler = data.DistributedSampler(MapStyleSource(), num_replicas=2, rank=0)
    pyecho.EchoLoader(sampled(batch_sampler=data.BatchSampler(sampler, 2, False))).set_epoch(5)
    assert sampler.epoch == 5


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"x": 1}, "a dict, whose values must be columns.*pass .* a list of dicts"),
        ("abc", "a str, whose items would be its characters"),
        (np.array(3), "no axes; its first axis must count the items"),
        (np.float32(3), "no axes; its first axis must count the items"),
        ((X, Y[:3]), r"tuple of columns.*lengths differ: \[4, 3\]; pass a list if"),
        ((Sliced(X), [1, 2]), r"lengths differ: \[4, 2\]"),
        (Pair(X, [1]), r"Pair of columns.*lengths differ: {'x': 4, 'y': 1}"),
        ({"x": X, "y": Dataset([1])}, r"dict of columns.*lengths differ: {'x': 4, 'y': 1}"),
        ([Sliced(X), Sliced(X[:2])], r"list of columns.*\[4, 2\]; pass an iterator"),
        ({}, "a dict.*it is empty.*a list of dicts"),
        ({"x": X, "y": 1}, r"'y' is a int; pass columns, or .*a list of dicts"),
        ({"x": {"y": X}}, r"'x' is a dict"),
        ({"x": "abcd"}, r"'x' is a str"),
        (types.SimpleNamespace(columns=1, iterrows=1), r"to_numpy.*to_dict\('records'"),
        (types.SimpleNamespace(columns=1, iter_rows=1, to_dicts=1), r"\.to_dicts\(\)"),
        (types.SimpleNamespace(columns=1, to_pylist=1), r"\.to_pylist\(\)"),
        (3, "must be iterable .*a DataLoader.*, got int$"),
        (lambda: iter([]), "got function; call it and pass what it returns"),
    ],
)
def test_objects_that_cannot_be_sources_are_refused_with_a_hint(source, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.EchoLoader(source, batch_size=2)


def test_stop_iteration_of_getitem_is_an_error_and_no_end():
    class Stopping:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            if index == 3:
                raise StopIteration
            return index

    loader = pyecho.EchoLoader(Stopping(), 1, batch_size=1, shuffle_buffer=1)
    taken = []
    with pytest.raises(RuntimeError, match="item 3 of the source raised StopIteration"):
        taken.extend(batch.tolist() for batch in loader)
    assert taken == [[0], [1], [2]]
