"""States of states of states: after up to five resumes the output is that of one run."""

import os
import random

import pytest
from resuming import END, ONE_SHOT, SOURCES, STATEFUL, Consumer, Scenario
from segments import segments_of

torchdata = pytest.importorskip("torchdata")

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")
CHAINS = 10_000 if STRESS else 300
AT_ONCE = CHAINS // 20
FORMS = (*SOURCES, *STATEFUL)  # twice as many of those with a state of their own

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the source .* yielded nothing"),
    pytest.mark.filterwarnings("ignore:the .* items of the source, used"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),
]


def stop_after(taken, whole, draw):
    """Return where the next state is taken: the places that are special, as often as others."""
    kind = draw.randrange(6)
    if kind == 0:
        return taken  # without a next() in between
    if kind == 1:
        return min(taken + 1, len(whole))
    if kind < 5 and END in whole[taken:]:
        end = whole.index(END, taken)  # one past the last batch of an epoch
        return min(len(whole), max(taken, end + draw.choice([-8, -5, -3, -2, -1, 0, 1])))
    return draw.randint(taken, len(whole))


def resumed(consumer, scenario, draw):
    """Go on from a state, in a new loader or in the same one."""
    payload = scenario.form in STATEFUL or draw.random() < 0.5
    if scenario.form in ONE_SHOT or draw.random() < 0.8:
        return consumer.moved_to(scenario.loader(draw), payload=payload)
    consumer.loader.load_state_dict(consumer.loader.state_dict(payload=payload))
    return Consumer(consumer.loader)


def chain(seed):
    """Return what is wrong with a random chain of resumes, None if it is right."""
    scenario, draw = Scenario(seed, forms=FORMS, evened=True), random.Random(seed + 1)
    with segments_of(draw.choice([None, None, 15, 60])):
        return chain_of(scenario, draw, seed)


def chain_of(scenario, draw, seed):
    """Return the same of a scenario."""
    consumer = Consumer(scenario.loader(draw))
    whole = consumer.take_all(scenario.iterations)
    consumer.loader.close()
    consumer, taken, stops = Consumer(scenario.loader(draw)), [], []
    for _ in range(draw.randint(1, 5)):
        stops.append(stop_after(len(taken), whole, draw))
        taken += consumer.take(stops[-1] - len(taken))
        consumer = resumed(consumer, scenario, draw)
    taken += consumer.take(len(whole) - len(taken))
    consumer.loader.close()
    if taken == whole:
        return None
    first = next(
        at for at, (one, other) in enumerate(zip(taken, whole, strict=True)) if one != other
    )
    return f"{scenario.form} {scenario.options}: resumed at {stops}, wrong from {first} on"


@pytest.mark.parametrize("first", range(0, CHAINS, AT_ONCE))
def test_state_of_a_resumed_loader_is_as_good_as_the_first(first):
    wrong = {seed: chain(seed) for seed in range(first, first + AT_ONCE)}
    assert {seed: what for seed, what in wrong.items() if what is not None} == {}
