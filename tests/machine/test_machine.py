"""A loader under all that a user does to it yields what one without any stop yields."""

from __future__ import annotations

import copy
import io
import pickle
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from drivers import length_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from interrupt_points import Interrupts
from interrupts import unraisable_interrupts_dropped
from plans import LAST, OTHER_SEED, SEED_OF_ORDER, Driver, Plan, drivers, plain, plans

pytestmark = [
    pytest.mark.filterwarnings("ignore:the source .* yielded nothing"),
    pytest.mark.filterwarnings("ignore:the source .* is an iterator:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:the .* items of the source, used"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


class Place(NamedTuple):
    """Where a consumer is.

    Attributes
    ----------
    flow, number, batches
        The epoch in which the flow began, the iteration, and the batches taken of it.
    ordered
        True once the order of a DataLoader was decided, by the seed of torch.
    """

    flow: int = 0
    number: int = 0
    batches: int = 0
    ordered: bool = False


class Move(NamedTuple):
    """Take so many batches, save with or without items, load with another driver."""

    count: int
    payload: bool
    driver: Driver


moves = st.builds(Move, st.integers(0, 2), st.booleans(), drivers)


def pickled(state: Any) -> Any:
    return pickle.loads(pickle.dumps(state))


def saved_by_torch(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def overwrite(batch: Any) -> None:
    """Do with a batch what its consumer may: what is in its lists travels by reference."""
    if isinstance(batch, torch.Tensor):
        batch.zero_()
    elif isinstance(batch, np.ndarray):
        batch[...] = 0
    elif isinstance(batch, dict | tuple):
        for each in batch.values() if isinstance(batch, dict) else batch:
            overwrite(each)


class Consumer(RuleBasedStateMachine):
    """Takes batches of one loader after the other, and says before each which one comes."""

    states = Bundle("states")

    plan: Plan
    loader: Any
    place: Place
    iterator: Any  # None between two iterations
    is_left: bool  # an iteration was left, and no other one has begun
    is_loaded: bool  # a state was loaded, and no iteration has begun

    @initialize(plan=plans(), driver=drivers)
    def begin(self, plan: Plan, driver: Driver) -> None:
        self.plan = plan
        self.replace_loader(plan.loader(driver), Place())

    def teardown(self) -> None:
        if hasattr(self, "loader"):
            self.iterator = None
            self.loader.close()

    # ------------------------------------------------------------ what is known

    def replace_loader(self, loader: Any, place: Place, *, loaded: bool = False) -> None:
        self.loader, self.place, self.iterator = loader, place, None
        self.is_left, self.is_loaded = False, loaded

    @property
    def expected(self) -> list[Any]:
        """The batches of this iteration."""
        return [] if self.is_over else self.plan.iteration(self.place.flow, self.place.number)

    @property
    def is_over(self) -> bool:
        return self.place.number >= self.plan.iterations

    @property
    def is_under_way(self) -> bool:
        return self.iterator is not None or self.is_left

    @property
    def may_jump(self) -> bool:
        """The rest of an iteration can be dropped, and any other one taken."""
        kind = self.plan.kind
        return kind.jumps and not kind.one_shot and not (kind.own_state and self.is_under_way)

    @property
    def may_be_left(self) -> bool:
        """The rest of an iteration, if any, can be left."""
        kind = self.plan.kind
        return kind.jumps or kind.one_shot or self.place.batches == len(self.expected)

    @property
    def end_is_open(self) -> bool:
        """True if the loader knows the last batch only once it has read far enough."""
        known = self.plan.kind.known and not self.plan.adaptive
        known = known and not self.plan.options["unique_in_batch"]
        if known or self.plan.options["steps_per_epoch"] is not None:
            return False
        return self.place.batches == len(self.expected)

    def pass_on(self, *, following: bool) -> None:
        """Go to the next iteration, which may belong to the same flow."""
        number = self.place.number + 1
        flow = self.plan.flow_of(self.place.flow, number) if following else number
        self.place = self.place._replace(flow=flow, number=number, batches=0)
        self.iterator, self.is_left, self.is_loaded = None, False, False

    def decide_order(self) -> None:
        """Have the order decided as that of an uninterrupted run was, unless it has been."""
        torch.manual_seed(OTHER_SEED if self.place.ordered else SEED_OF_ORDER)
        self.place = self.place._replace(ordered=True)

    # ------------------------------------------------------------ rules

    def take(self, count: int, interrupts: Interrupts | None = None) -> None:
        if count == 0:
            return
        if self.is_left and not self.plan.kind.one_shot:
            self.pass_on(following=False)
        if self.iterator is None:
            self.decide_order()
            self.iterator = iter(self.loader)
            self.is_left = self.is_loaded = False
        begun = self.place.batches
        found = self.emitted(count, interrupts)
        assert found == self.expected[begun : begun + count]
        self.place = self.place._replace(batches=begun + len(found))
        if len(found) < count:
            assert self.place.batches == len(self.expected)
            self.pass_on(following=True)

    def emitted(self, count: int, interrupts: Interrupts | None) -> list[Any]:
        """Return so many batches, fewer at the end. An interrupted next() is made once more."""
        found: list[Any] = []
        if interrupts is None:
            for emission in islice(self.iterator, count):
                found.append(plain(emission))
                if self.plan.batches_are_its_own:
                    overwrite(emission[0])
            return found
        taken: list[Any] = []
        with unraisable_interrupts_dropped():
            while len(found) < count:
                while not interrupts.strikes(lambda: taken.extend(islice(self.iterator, 1))):
                    pass
                if not taken:
                    break
                found.append(plain(taken.pop()))
        return found

    def may_take(self) -> bool:
        number = self.place.number + (self.is_left and not self.plan.kind.one_shot)
        return number < self.plan.iterations

    @precondition(may_take)
    @rule(count=st.integers(1, 9))
    def take_some(self, count: int) -> None:
        self.take(count)

    @precondition(may_take)
    @rule()
    def finish(self) -> None:
        self.take(1000)

    @precondition(lambda self: self.may_take() and not self.is_left)
    @rule(left=st.integers(0, 2))
    def take_all_but(self, left: int) -> None:
        """Take the batches of this iteration but the last ones."""
        self.take(max(0, len(self.expected) - self.place.batches - left))

    @rule(moves=st.lists(moves, min_size=1, max_size=4))
    def move(self, moves: list[Move]) -> None:
        """Take some batches, and go on in another loader; several times."""
        for count, payload, driver in moves:
            if self.may_take():
                self.take(count)
            self.load_into_another(self.saved(payload, pickled), driver)

    @precondition(lambda self: self.may_take() and not (self.plan.kind.one_shot and self.is_loaded))
    @precondition(lambda self: self.plan.kind.jumps or self.plan.kind.own_state)
    @precondition(lambda self: self.plan.kind.survives)
    @rule(count=st.integers(1, 4), gaps=st.lists(st.integers(1, 200), min_size=1, max_size=3))
    def be_interrupted(self, count: int, gaps: list[int]) -> None:
        self.take(count, Interrupts(*gaps))

    @precondition(lambda self: self.iterator is not None and not self.end_is_open)
    @precondition(lambda self: self.may_be_left)
    @rule()
    def leave(self) -> None:
        self.iterator, self.is_left = None, True
        if self.place.batches == len(self.expected):  # as a loop that counts its batches ends
            self.pass_on(following=True)

    @rule(target=states, payload=st.booleans(), copied=st.sampled_from([pickled, copy.deepcopy]))
    def save(self, payload: bool, copied: Any) -> tuple[Any, Place]:
        return self.saved(payload, copied)

    def saved(self, payload: bool, copied: Any) -> tuple[Any, Place]:
        if self.plan.saves_tensors:
            copied = saved_by_torch
        payload = payload or self.plan.kind.own_state
        self.decide_order()
        return copied(self.loader.state_dict(payload=payload)), self.place

    @rule(state=states, driver=drivers)
    def load_elsewhere(self, state: tuple[Any, Place], driver: Driver) -> None:
        self.load_into_another(state, driver)

    def load_into_another(self, state: tuple[Any, Place], driver: Driver) -> None:
        loader = self.plan.loader(driver)
        loader.load_state_dict(state[0])
        self.iterator = None
        self.loader.close()
        self.replace_loader(loader, state[1], loaded=True)

    @precondition(lambda self: not self.plan.kind.one_shot)
    @rule(state=states)
    def load_here(self, state: tuple[Any, Place]) -> None:
        self.loader.load_state_dict(state[0])
        self.replace_loader(self.loader, state[1], loaded=True)

    @precondition(lambda self: self.may_jump and not self.end_is_open)
    @rule(epoch=st.integers(0, LAST))
    def set_epoch(self, epoch: int) -> None:
        self.loader.set_epoch(epoch)
        place = self.place
        if place.batches == len(self.expected) > 0 and epoch == place.number + 1:
            self.pass_on(following=True)
        elif epoch != place.number or self.is_under_way:
            place = Place(epoch, epoch, 0, place.ordered)
            self.replace_loader(self.loader, place)

    @precondition(lambda self: self.plan.kind.known and not self.plan.kind.own_state)
    @precondition(lambda self: not self.plan.options["unique_in_batch"] and not self.plan.adaptive)
    @precondition(lambda self: self.may_take() and self.iterator is None)
    @rule(share=st.floats(0, 1))
    def skip_first_batches(self, share: float) -> None:
        if self.is_left:
            self.pass_on(following=False)
        count = round(share * len(self.expected))
        self.decide_order()
        self.loader.skip_first_batches(count)
        self.place = self.place._replace(batches=count)
        self.is_loaded = True

    @precondition(lambda self: self.may_jump and not self.plan.kind.own_state)
    @rule(way=st.sampled_from([copy.copy, copy.deepcopy, pickled]))
    def copy_loader(self, way: Any) -> None:
        loader, place = way(self.loader), self.place
        if not self.is_loaded:
            number = place.number + self.is_under_way
            place = place._replace(flow=number, number=number, batches=0, ordered=False)
        self.iterator = None
        self.loader.close()
        self.replace_loader(loader, place, loaded=self.is_loaded)

    # ------------------------------------------------------------ invariants

    @invariant()
    def length_is_that_of_the_iteration(self) -> None:
        if hasattr(self, "loader") and not self.is_over and not self.plan.kind.one_shot:
            assert length_of(self.loader) in (None, len(self.expected))


test_consumer_gets_what_the_model_says = Consumer.TestCase
test_consumer_gets_what_the_model_says.settings = settings(
    max_examples=settings.default.max_examples * 3, stateful_step_count=15
)
