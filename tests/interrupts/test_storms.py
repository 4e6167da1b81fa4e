"""SIGINT at random moments of every pipeline: nothing is lost, nothing comes twice."""

import os
import random

import pytest
from interrupt_points import Interrupts
from interrupts import Storm, unraisable_interrupts_dropped
from pipelines import PIPELINES, check, name_of

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")
INTERRUPTS = 3000 if STRESS else 8

pytestmark = [
    pytest.mark.filterwarnings("ignore:the consumer keeps batches"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


@pytest.mark.parametrize("number", range(len(PIPELINES)), ids=map(name_of, PIPELINES))
def test_pipeline_loses_nothing_in_a_storm_of_interrupts(number):
    with Storm(number) as storm:
        while storm.interrupts < INTERRUPTS:
            check(number, storm.strikes, seed=storm.interrupts)


@pytest.mark.parametrize("number", range(len(PIPELINES)), ids=map(name_of, PIPELINES))
def test_pipeline_loses_nothing_by_an_interrupt_at_any_point(number):
    counted = Interrupts()
    check(number, counted.strikes, seed=number)
    points = range(1, counted.reached + 1)
    if not STRESS:
        points = random.Random(number).sample(points, 5)
    with unraisable_interrupts_dropped():
        for at in points:
            check(number, Interrupts(at).strikes, seed=number)
