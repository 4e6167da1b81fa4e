"""Sources that make examples on the device, such as decoders of images, in example echoing."""

import gc
import weakref

import numpy as np
import pytest
import torch
from host_device import there

import pyecho.torch

DEVICE = {"device": "cuda:0", "echo_on": "device"}


def images(count=23):
    return [
        {"image": there(torch.full((2, 5), float(n))), "label": n, "mask": there(torch.arange(3))}
        for n in range(count)
    ]


def test_what_is_there_does_not_cross(device):
    loader = pyecho.torch.EchoLoader(images(), 2, batch_size=4, **DEVICE)
    list(loader)
    tickets = labels = 23 * 8
    indices = (23 + 46) * 8
    assert loader.stats().h2d_bytes <= tickets + labels + indices


def test_after_a_break_the_next_epoch_is_whole_and_rows_are_kept_by_the_pool_alone(device):
    watched = []

    class Source:
        def __iter__(self):
            for number in range(23):
                memory = np.full((2, 5), number)  # of the tensor, where the device is host memory
                watched.append(weakref.ref(memory))
                yield {"image": there(torch.from_numpy(memory)), "label": number}

    loader = pyecho.torch.EchoLoader(Source(), 3, batch_size=4, shuffle_buffer=8, **DEVICE)
    for _ in loader:
        break
    del _
    assert sum(len(batch["label"]) for batch in loader) == 69
    gc.collect()
    assert [each() for each in watched] == [None] * len(watched)


@pytest.mark.parametrize(
    "other",
    [
        {"image": there(torch.zeros(2, 6)), "label": 1, "mask": there(torch.arange(3))},
        {"image": there(torch.zeros(2, 5).int()), "label": 1, "mask": there(torch.arange(3))},
        {"image": torch.zeros(2, 5), "label": 1, "mask": there(torch.arange(3))},
    ],
)
def test_an_item_that_differs_is_reported_after_those_before_it(device, other):
    source = [*images(5), other]
    loader = pyecho.torch.EchoLoader(source, 2, batch_size=4, **DEVICE)
    emitted = []
    with pytest.raises(pyecho.SpecMismatch, match="cuda:0"):
        for batch in loader:
            emitted += batch["label"].tolist()
    assert sorted(emitted) == [n for n in range(5) for _ in range(2)]


def test_leaves_are_found_by_their_names(device):
    zeros, ones = there(torch.zeros(2)), there(torch.ones(2))
    source = [{"a": zeros, "b": ones}, {"b": ones, "a": zeros}] * 6
    for batch in pyecho.torch.EchoLoader(source, 2, batch_size=4, **DEVICE):
        assert (batch["a"] == 0).all()
        assert (batch["b"] == 1).all()


def test_a_tensor_that_the_source_fills_again_is_noticed(device):
    def source():
        buffer = there(torch.zeros(3))
        for number in range(20):
            yield buffer.fill_(number)

    loader = pyecho.torch.EchoLoader(source(), 1, batch_size=8, shuffle_buffer=0, **DEVICE)
    with pytest.raises(pyecho.EchoMutated, match="yield new tensors"):
        list(loader)


def test_an_epoch_in_inference_mode_and_then_one_without(device):
    loader = pyecho.torch.EchoLoader(images(), 2, batch_size=4, **DEVICE)
    with torch.inference_mode():
        assert len(list(loader)) == 12
    assert len(list(loader)) == 12


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"a": torch.tensor(1.0)}, "give it a batch axis"),
        (
            {"a": torch.ones(3, 2), "b": torch.ones(4, 2)},
            "has 4 rows, but a tensor before it has 3",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(device, items, message):
    source = [{"x": torch.ones(3)} | {name: there(leaf) for name, leaf in items.items()}]
    loader = pyecho.torch.EchoLoader(source, 2, batch_size=2, unbatch=True, **DEVICE)
    with pytest.raises((pyecho.ConfigError, pyecho.SpecMismatch), match=message):
        list(loader)


def test_batch_echoing_hands_out_what_is_there(device):
    source = [item["image"] for item in images()]
    emitted = list(pyecho.torch.EchoLoader(source, 2, device="cuda:0"))
    assert all(each is source[number // 2] for number, each in enumerate(emitted))


def test_the_host_echo_says_what_to_do(device):
    class Elsewhere(torch.Tensor):
        device = torch.device("cuda", 0)

    source = [torch.zeros(3).as_subclass(Elsewhere)]
    with pytest.raises(pyecho.ConfigError, match="echo_on='device'"):
        next(iter(pyecho.torch.EchoLoader(source, 2, batch_size=2, device="cuda:0")))


@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("options", [{}, {"batch_size": 4}, {"batch_size": 4, "echo_on": "device"}])
def test_arrow_tables_go_to_the_device(options):
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"x": range(12), "name": [f"n{x}" for x in range(12)]})
    table = pa.Table.from_batches(table.to_batches(max_chunksize=5))
    loader = pyecho.torch.EchoLoader(table, 2, device="cuda:0", **options)
    found = []
    for batch in loader:
        assert isinstance(batch["x"], torch.Tensor)
        assert list(batch["name"]) == [f"n{x}" for x in batch["x"].tolist()]
        found += batch["x"].tolist()
    assert sorted(found) == sorted([*range(12)] * 2)
