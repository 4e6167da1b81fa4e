"""States of loaders of tensors, and over torch's own loaders."""

import io
from functools import partial

import numpy as np
import pytest
from resuming import Stateful
from waiting import wait_until

torch = pytest.importorskip("torch")

import pyecho  # noqa: E402
import pyecho.torch  # noqa: E402

pytestmark = pytest.mark.slow


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return {"image": torch.full((3,), index, dtype=torch.bfloat16), "label": index}


def moved(loader, **arguments):
    """Its state, by way of a file that holds plain data only."""
    file = io.BytesIO()
    torch.save(loader.state_dict(**arguments), file)
    loader.close()
    file.seek(0)
    return torch.load(file, weights_only=True)


def augmented(source, **options):
    options = {"batch_size": 4, "shuffle_buffer": 8, "augment": lambda batch, rng: batch} | options
    return pyecho.torch.EchoLoader(source, 2, **options)


@pytest.mark.parametrize("payload", [True, False])
def test_states_hold_their_numbers_under_another_default_device(payload):
    empty = {"b": np.zeros((0, 3), "f4")}
    items = [{"x": np.arange(3) + number, **empty} for number in range(20)]
    make = partial(pyecho.torch.EchoLoader, items, 2.5, batch_size=4, shuffle_buffer=5)
    whole = [batch["x"].tolist() for batch in make()]
    loader, again = make(), make()
    batches = iter(loader)
    next(batches)
    with torch.device("meta"):
        state = moved(loader, payload=payload)
        again.load_state_dict(state)
        assert [batch["x"].tolist() for batch in again] == whole[1:]


def test_jagged_batches_and_draws_are_on_the_host_under_another_default_device():
    items = [{"x": np.zeros(number % 4, "f4"), "y": np.zeros(3, "f4")} for number in range(20)]
    fields = {"x": pyecho.Field((None,), "float32", max_bytes=16)}

    def drawn(batch, rng):
        return {**batch, "y": torch.rand(3, device="cpu")}

    with torch.device("meta"):
        loader = augmented(items, fields=fields, augment=drawn)
        loader.as_dataset().set_epoch(0)
        for batch in loader:
            assert batch["x"].is_cpu
            assert batch["y"].is_cpu


def test_rank_of_a_state_is_a_number_or_an_array_of_one(monkeypatch):
    monkeypatch.setattr(pyecho.torch, "_rank", lambda: 0)
    loader = pyecho.torch.EchoLoader(Stateful(20), 2, batch_size=4)
    next(iter(loader))
    state = loader.state_dict()
    for of_rank in (0, np.zeros((), int), torch.tensor(0)):
        loader.load_state_dict(state | {"of_rank": of_rank})
    for of_rank in (1, np.int64(1), torch.tensor(1)):
        with pytest.raises(pyecho.CheckpointError, match="rank 1, and this is rank 0"):
            loader.load_state_dict(state | {"of_rank": of_rank})
    for damaged in (np.zeros(2, int), torch.zeros(2), -1, "0", torch.zeros((), device="meta")):
        with pytest.raises(pyecho.CheckpointError, match="'of_rank'"):
            loader.load_state_dict(state | {"of_rank": damaged})


def test_rank_of_a_stream_takes_no_lengths_of_another_ranks_passes(monkeypatch):
    class Stream:
        """Items of a rank, of which no length is known."""

        def __init__(self, rank):
            self.rank = rank

        def __iter__(self):
            return iter(range(1000 * self.rank, 1000 * self.rank + 300 + 7 * self.rank))

    def run(rank, taken, state=None):
        monkeypatch.setattr(pyecho.torch, "_rank", lambda: rank)
        options = {"batch_size": 4, "shuffle_buffer": 5, "steps_per_epoch": 250}
        loader = pyecho.torch.EchoLoader(Stream(rank), 2, **options)
        if state is not None:
            loader.load_state_dict(state)
        batches = iter(loader)
        return [next(batches).tolist() for _ in range(taken)], loader.state_dict()

    for taken in (3, 200):  # in the first pass, after it
        states = [run(rank, taken)[1] for rank in (0, 1)]
        for rank in (0, 1):
            wanted = run(rank, taken + 9)[0][taken:]
            assert run(rank, 9, states[rank])[0] == wanted
            if taken == 3:
                assert run(rank, 9, states[1 - rank])[0] == wanted
                continue
            with pytest.raises(pyecho.CheckpointError, match=f"load that of rank {rank};"):
                run(rank, 9, states[1 - rank])


RETURNED = {
    "array": np.arange(6, dtype=">i4").reshape(2, 3),
    "array without axes": np.array(2.5),
    "array without elements": np.empty((0, 4), np.float32),
    "dates": np.array(["2020-02-02"], "M8[D]"),
    "texts": np.array(["ab", "c"]),
    "empty texts": [np.str_(""), np.bytes_(b""), np.array([""])],
    "numbers": [np.float32(1.5), np.int64(-3), np.True_, 7, 2j, None, "text", b"bytes"],
    "pairs": ((1, np.arange(3)), (2, torch.arange(2))),
    "rows": pyecho.Ragged(torch.arange(3), torch.tensor([0, 3]), torch.tensor([[1, 3]])),
    "rows of arrays": pyecho.Padded(np.ones((2, 3)), np.array([3, 2])),
    "dict": {"pyecho": "Ragged", 3: {"a": np.arange(2)}},
}


def told(value):
    """Return what is in a value, with the types of all."""
    if isinstance(value, list | tuple):
        return type(value), list(map(told, value))
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return type(value), value.dtype, value.shape, value.tolist()
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("name", RETURNED)
@pytest.mark.parametrize("batch_size", [None, 4])
def test_state_of_whatever_is_made_of_plain_data_goes_through_a_file(batch_size, name):
    def make():
        options = {"batch_size": batch_size, "augment": lambda batch, rng: RETURNED[name]}
        return pyecho.torch.EchoLoader(Numbers(), 2, **options)

    loader = make()
    batches = iter(loader)
    next(batches)
    wait_until(lambda: loader._run.epochs.flow.pipeline.links[0].queue._stats()["read"] > 1)
    again = make()
    again.load_state_dict(moved(loader))
    assert told(next(iter(again))) == told(RETURNED[name])
