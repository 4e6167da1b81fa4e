"""Sequences that a random search has found, and that a fixed seed need not find again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plans import Driver, Plan
from test_machine import Consumer, Move, pytestmark

from pyecho import Adaptive

__all__ = ["pytestmark"]


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer()
    yield made
    made.teardown()


def test_items_that_left_before_a_state_are_in_no_later_one(consumer):
    plan = Plan(
        "stateful iterators",
        1,
        factor=Adaptive(4, min=1),
        shuffle_buffer=1,
        steps_per_epoch=4,
        arrivals=(0, 0, 4),
        links="augment",
    )
    consumer.begin(plan, Driver(prefetch=7))
    consumer.move([Move(1, True, Driver(prefetch=2)), Move(2, True, Driver(prefetch=2))])


@pytest.mark.parametrize("gap", range(1, 60))
def test_ctrl_c_while_lists_are_drawn_loses_none(consumer, gap):
    plan = Plan("loader of lists", 2, batch_size=1, shuffle_buffer=2, epochs=2)
    consumer.begin(plan, Driver(threads=0))
    consumer.finish()
    consumer.be_interrupted(count=1, gaps=[gap, 7])
    consumer.finish()


def test_batches_are_skipped_of_a_state_with_batches_made_ahead(consumer):
    plan = Plan("loader of batches", 1, batch_size=1, links="augment")
    consumer.begin(plan, Driver())
    consumer.move([Move(0, True, Driver()), Move(1, True, Driver())])
    consumer.skip_first_batches(share=0.0)
    consumer.finish()


def test_state_of_a_run_that_has_just_loaded_one_is_plain_data(consumer):
    consumer.begin(Plan("seeded loader", 8, batch_size=3, of_torch=True), Driver())
    consumer.move([Move(1, False, Driver()), Move(0, False, Driver()), Move(2, True, Driver())])


def test_position_of_a_state_with_batches_made_ahead_is_that_of_its_consumer(consumer):
    plan = Plan("list", 20, factor=2, batch_size=2, shuffle_buffer=4, links="augment")
    consumer.begin(plan, Driver())
    consumer.move([Move(2, True, Driver()), Move(0, False, Driver()), Move(3, True, Driver())])


def test_break_on_the_last_batch_leaves_what_is_dropped_out_of_the_state(consumer):
    plan = Plan("loader of batches", 5, factor=3, batch_size=4, drop_last=True, epochs=2)
    consumer.begin(plan, Driver())
    consumer.take_all_but(0)
    consumer.leave()
    consumer.move([Move(0, True, Driver()), Move(3, True, Driver())])
