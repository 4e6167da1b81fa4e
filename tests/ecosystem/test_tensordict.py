"""TensorDicts and tensorclasses as items keep their `batch_size`. See requirements/."""

import pickle

import pytest
import torch

pytest.importorskip("tensordict")

from drivers import batch_of
from tensordict import LazyStackedTensorDict, TensorDict, lazy_stack, tensorclass

import pyecho
import pyecho.torch


@tensorclass
class Step:
    x: torch.Tensor
    name: str
    reward: torch.Tensor = None


def made(number, size=(4,), **more):
    values = {"x": torch.full((*size, 3), float(number)), "name": str(number)}
    inner = TensorDict({"y": torch.full((*size, 2, 5), number)}, [*size, 2])
    return TensorDict({**values, "inner": inner, **more}, size)


def loaded(source, factor=1, *, loader=pyecho.torch.EchoLoader, **options):
    return list(loader(source, factor, shuffle_buffer=0, **options))


@pytest.mark.parametrize("loader", [pyecho.EchoLoader, pyecho.torch.EchoLoader])
@pytest.mark.parametrize("size", [(), (4,), (4, 2)])
def test_batch_of_tensordicts_has_an_axis_more(loader, size):
    [batch] = loaded(map(made, range(3), [size] * 3), loader=loader, batch_size=3)
    assert type(batch) is TensorDict
    assert batch.batch_size == (3, *size)
    assert batch["inner"].batch_size == (3, *size, 2)
    assert batch["inner", "y"].shape == (3, *size, 2, 5)
    for number in range(3):
        assert (batch[number] == made(number, size)).all()


@pytest.mark.parametrize("loader", [pyecho.EchoLoader, pyecho.torch.EchoLoader])
def test_under_unbatch_a_tensordict_has_as_many_rows_as_its_batch_size_says(loader):
    def columns(*numbers):
        return TensorDict({"x": torch.tensor(numbers), "name": list(map(str, numbers))}, [3])

    source = [columns(0, 1, 2), columns(3, 4, 5)]
    batches = loaded(source, loader=loader, batch_size=2, unbatch=True)
    assert [batch.batch_size for batch in batches] == [(2,)] * 3
    assert torch.cat([batch["x"] for batch in batches]).tolist() == list(range(6))
    assert [batch[1]["name"] for batch in batches] == ["1", "3", "5"]


def test_names_devices_and_types_are_kept():
    source = [
        TensorDict({"x": torch.zeros(4, 2)}, [4], names=["time"], device="cpu") for _ in range(3)
    ]
    [batch] = loaded(source, batch_size=3)
    assert (batch.names, batch.device) == ([None, "time"], torch.device("cpu"))
    stacks = [lazy_stack([made(1, ()), made(2, ())]) for _ in range(2)]
    assert isinstance(stacks[0], LazyStackedTensorDict)
    assert batch_of(*stacks).batch_size == (2, 2)


@pytest.mark.parametrize("size", [(), (4,)])
def test_tensorclasses_are_batched_too(size):
    source = [Step(torch.full((*size, 3), float(n)), str(n), batch_size=size) for n in range(3)]
    [batch] = loaded(source, batch_size=3)
    assert type(batch) is Step
    assert batch.batch_size == (3, *size)
    assert batch.reward is None
    assert (batch[2].x == source[2].x).all()
    assert batch[2].name == "2"


def test_items_of_batch_echoing_are_shared_watched_and_copied():
    item = made(1)
    uses = iter(pyecho.torch.EchoLoader([item], 3))
    assert next(uses) is item
    copy = next(iter(pyecho.torch.EchoLoader([item], 3, copy=True)))
    assert (copy == item).all()
    assert copy["inner", "y"] is not item["inner", "y"]
    item["inner", "y"].add_(1)
    with pytest.raises(pyecho.EchoMutated, match=r"item\['inner'\]\['y'\]"):
        next(uses)


def test_mismatch_names_the_part():
    with pytest.raises(pyecho.SpecMismatch, match=r"item: expected a TensorDict with keys .*more"):
        batch_of(made(1), made(2, more=torch.zeros(4)))
    with pytest.raises(pyecho.SpecMismatch, match=r"item: expected a TensorDict .*, got dict"):
        batch_of(made(1), made(2).to_dict())


@pytest.mark.parametrize("options", [{"batch_size": 4}, {}, {"batch_size": 6, "unbatch": True}])
def test_loader_goes_on_by_a_state(options):
    def loader():
        rows = [TensorDict({"x": torch.full((4, 3), float(n))}, [4]) for n in range(9)]
        return pyecho.torch.EchoLoader(rows, 2, **options)

    with loader() as first:
        batches = iter(first)
        next(batches)
        state = pickle.dumps(first.state_dict(payload=True))
        rest = [batch.clone() for batch in batches]
    with loader() as second:
        second.load_state_dict(pickle.loads(state))
        again = [batch.clone() for batch in second]
    assert [batch.batch_size for batch in again] == [batch.batch_size for batch in rest]
    assert all((ours == theirs).all() for ours, theirs in zip(again, rest, strict=True))


def test_lists_of_tensordicts_may_be_examples_and_are_not_split():
    with pytest.raises(pyecho.ConfigError, match="may be 2 examples"):
        loaded([[made(1), made(2)]], batch_size=2, unbatch=True)
