"""After a loop was left, a state is the position where it was left, until another one begins."""

import itertools
import threading

import pytest
import torch
from waiting import join_threads

import pyecho
import pyecho.torch


class Yielding:
    def __iter__(self):
        yield from range(40)


class Rows:
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


SOURCES = {
    "in memory": ([*range(40)], {}),
    "iterated": (Yielding(), {}),
    "in the consumer's thread": (Yielding(), {"threads": 0}),
    "workers": (Rows(), {"num_workers": 2, "workers": "thread", "shuffle": True}),
    "augmented": (Yielding(), {"augment": lambda batch, rng: batch + rng.integers(5)}),
    "loader": (torch.utils.data.DataLoader(Rows(), shuffle=True), {"unbatch": True}),
}
OPTIONS = {"batch_size": 3, "shuffle_buffer": 6, "with_info": True}


def plain(emission):
    batch, info = emission
    return batch.tolist(), info.use.tolist()


def left_after(loader, count):
    """The batches of a loop that is left after some."""
    found = []
    for emission in loader:
        found.append(plain(emission))
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize(("source", "more"), SOURCES.values(), ids=SOURCES)
def test_state_after_a_loop_was_left_is_where_it_was_left(source, more, payload):
    def loader(seed):
        torch.manual_seed(seed)
        return pyecho.torch.EchoLoader(source, 2, **OPTIONS, **more)

    whole = [list(map(plain, each)) for each in itertools.repeat(loader(1), 2)]
    for count in (1, 8, len(whole[0]) - 1):
        given = loader(1)
        assert left_after(given, count) == whole[0][:count]
        state = given.state_dict(payload=payload)
        other = loader(2)
        other.load_state_dict(state)
        assert list(map(plain, other)) == whole[0][count:]
        assert list(map(plain, other)) == whole[1]
        assert list(map(plain, given)) == whole[1], "the next iter() begins the next epoch"
        given.close()
        other.close()


def test_set_epoch_and_skipping_end_what_was_left():
    loader = pyecho.EchoLoader(Yielding(), 2, **OPTIONS)
    whole = [list(map(plain, loader)) for _ in range(2)]
    loader.set_epoch(0)
    left_after(loader, 5)
    loader.set_epoch(0)
    assert loader.state_dict()["position"] is None
    assert list(map(plain, loader)) == whole[0]
    loader = pyecho.EchoLoader([*range(40)], 2, **OPTIONS)
    left_after(loader, 5)
    loader.skip_first_batches(4)
    assert list(map(plain, loader)) == whole[1][4:]


class Counted:
    """Its iterators have a state of their own."""

    def __iter__(self):
        return CountedPass(0)


class CountedPass:
    def __init__(self, at):
        self.at = at

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == 40:
            raise StopIteration
        self.at += 1
        return self.at

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def test_state_of_the_pass_that_was_left_is_in_the_state():
    whole = [list(map(plain, each)) for each in [pyecho.EchoLoader(Counted(), 2, **OPTIONS)] * 2]
    given = pyecho.EchoLoader(Counted(), 2, **OPTIONS)
    left_after(given, 7)
    other = pyecho.EchoLoader(Counted(), 2, **OPTIONS)
    other.load_state_dict(given.state_dict())
    assert list(map(plain, other)) == whole[0][7:]
    assert list(map(plain, given)) == whole[1]


def test_iteration_that_was_left_keeps_no_thread_and_no_pass():
    closed = threading.Event()

    class Closing:
        def __iter__(self):
            try:
                yield from range(1000)
            finally:
                closed.set()

    loader = pyecho.EchoLoader(Closing(), 2, **OPTIONS)
    left_after(loader, 5)
    join_threads()
    assert closed.is_set()
    assert loader.state_dict()["position"]["delivered"] == 5


def test_what_was_left_ends_with_its_loader():
    loader = pyecho.EchoLoader(Yielding(), 2, **OPTIONS)
    left_after(loader, 5)
    loader.close()
    with pytest.raises(pyecho.Closed):
        loader.state_dict()


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("factor", [1, pyecho.Adaptive(3)])
def test_state_after_the_last_step_goes_on_though_no_item_follows_yet(factor, payload):
    def loader():
        options = {"batch_size": 3, "shuffle_buffer": 6, "steps_per_epoch": 6}
        return pyecho.EchoLoader(Yielding(), factor, **options)

    with loader() as first, loader() as second:
        assert sum(1 for _ in itertools.islice(first, 6)) == 6
        second.load_state_dict(first.state_dict(payload=payload))
        assert sum(1 for _ in second) == 6


class GoesOn:
    """Goes on by a state of its own."""

    def __init__(self):
        self.at = 0

    def __len__(self):
        return 14

    def __iter__(self):
        while self.at < 14:
            self.at += 1
            yield float(self.at - 1)
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize("augment", [None, lambda batch, rng: batch])
@pytest.mark.parametrize("threads", [0, None])
@pytest.mark.parametrize("source", [Rows, GoesOn])
def test_state_after_a_break_on_the_last_batch_of_a_pass_is_the_next_one(
    source, threads, augment, payload
):
    def loader():
        options = {"shuffle_buffer": 1, "epochs": 3, "threads": threads, "augment": augment}
        return pyecho.EchoLoader(source(), 1, batch_size=2, **options)

    whole = loader()
    passes = [[batch.tolist() for batch in whole] for _ in range(3)]
    for number in range(2):
        left = loader()
        for _ in range(number):
            for batch in left:
                del batch
        for _ in zip(range(len(passes[0])), left, strict=False):  # and no more
            pass
        resumed = loader()
        resumed.load_state_dict(left.state_dict(payload=payload or source is GoesOn))
        for wanted in passes[number + 1 :]:
            assert [batch.tolist() for batch in resumed] == wanted
