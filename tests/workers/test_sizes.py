"""Items of any size go straight into slots, as items of one size do."""

import contextlib
from pathlib import Path

import numpy as np
import pytest
from worked import FREE, Rows, Sized, emitted

import pyecho
from pyecho import Field, SpecMismatch, ops
from pyecho.workers import start

kinds = pytest.mark.parametrize("workers", ["process", "thread"])
CONFIGURATIONS = {
    "crops": {"ops": {"x": [ops.RandomResizedCrop(8), ops.RandomFlip(1)]}},
    "shuffled": {"shuffle": True, "factor": 2.5},
    "bounded": {"max_bytes": 1 << 30, "shuffle_buffer": 20},
}


@kinds
@pytest.mark.parametrize("options", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_output_is_that_without_workers(options, workers):
    options = {"batch_size": 8, "fields": Sized.fields} | options
    expected = emitted(Sized(30), **options)
    assert emitted(Sized(30), num_workers=3, workers=workers, **options) == expected


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_output_is_the_same_for_every_start_method(method):
    options = {"batch_size": 8, "fields": Sized.fields}
    started = {"num_workers": 2, "multiprocessing_context": method}
    assert emitted(Sized(20), 1, **options, **started) == emitted(Sized(20), 1, **options)


def test_first_item_alone_travels_in_a_message(monkeypatch):
    sizes, receive = [], start.receive

    def noted(channel, message):
        pickled, buffers = receive(channel, message)
        sizes.append(len(pickled) + sum(each.nbytes for each in buffers))
        return pickled, buffers

    monkeypatch.setattr(start, "receive", noted)
    emitted(Sized(), 1, batch_size=8, fields=Sized.fields, num_workers=2)
    assert max(sizes[1:]) < 1000 < sum(np.asarray(each).nbytes for each in Sized()[1].values())


@kinds
def test_item_beyond_max_bytes_or_of_another_kind_is_named_by_its_index(workers):
    class Other(Sized):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            return item if index != 17 else item | {"x": self.odd}

    for odd, message in (
        (np.zeros((600, 600, 3), np.uint8), "1080000 bytes"),
        (np.zeros((4, 4, 3), np.int8), "uint8"),
    ):
        dataset = Other()
        dataset.odd = odd
        found = []
        loader = pyecho.EchoLoader(
            dataset,
            1,
            batch_size=4,
            shuffle_buffer=0,
            num_workers=2,
            workers=workers,
            fields=Sized.fields,
        )
        with loader, pytest.raises(SpecMismatch, match=r"^source\[17\]: item\['x'\]") as raised:
            for batch in loader:
                found += batch["index"].tolist()
        assert message in str(raised.value).replace(",", "")
        assert found == [*range(17)]


def test_item_that_operations_refuse_is_named_by_its_index():
    class Small(Rows):
        def __getitem__(self, index):
            return np.zeros((20 - 15 * (index == 17), 20, 3), np.uint8)

    options = {"batch_size": 1, "shuffle_buffer": 0, "fields": FREE, "ops": [ops.RandomCrop(8)]}
    with pyecho.EchoLoader(Small(), 1, num_workers=2, **options) as loader:
        batches, found = iter(loader), 0
        with pytest.raises(SpecMismatch, match=r"^source\[17\]: item: "):
            while True:
                next(batches)
                found += 1
    assert found == 17


def test_items_for_which_no_addresses_are_left_come_back_by_messages():
    fields = {**Sized.fields, "x": Field((None, None, 3), "uint8", max_bytes=1 << 47)}
    options = {"batch_size": 8, "fields": fields}
    assert emitted(Sized(9), 1, num_workers=2, **options) == emitted(Sized(9), 1, **options)


def bytes_of_slots():
    """Memory that the files of this process's slots have."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it is gone
            if "pyecho-slots" in str(file.readlink()):
                found += file.stat().st_blocks * 512
    return found


def test_slots_have_memory_for_their_items_and_no_more():
    class Huge(Rows):
        def __getitem__(self, index):
            return np.full(index % 200 * 1000 if index < 400 else 5000, index % 7, np.uint8)

    field = Field(None, "uint8", max_bytes=1 << 30)
    with pyecho.EchoLoader(
        Huge(2000), 1, batch_size=4, shuffle_buffer=0, num_workers=2, fields=field
    ) as loader:
        most = 0
        for at, batch in enumerate(loader):
            del batch
            most = max(most, bytes_of_slots()) if at < 100 else most
        least = bytes_of_slots()
    assert most > 1_000_000
    assert least < most / 2
