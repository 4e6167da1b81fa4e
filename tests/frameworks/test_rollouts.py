"""examples/rollouts.py: a bounded replay of rollouts is exact, young, and goes on."""

import pickle
import runpy
from pathlib import Path

import numpy as np
import pytest

import pyecho

EXAMPLE = Path(__file__).parents[2] / "examples" / "rollouts.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_rollouts_are_used_within_bounds_also_after_restarts(example):
    factor = pyecho.Adaptive(example["MOST_USES"], max_age=example["MAX_AGE"])
    run, done = example["Run"](factor), False
    while not done:
        done = run.learn(500, run.steps + 40, seconds=2e-4)
        saved, steps = pickle.dumps(run.saved), run.steps
        if not done:
            run = example["Run"](factor)
            run.load(pickle.loads(saved))
            assert run.steps == steps
    assert sorted(run.uses) == list(range(500))
    assert 1 <= min(run.uses.values()) <= max(run.uses.values()) <= example["MOST_USES"]
    ahead = 32  # batches are small, so as many may be made ahead
    assert run.oldest <= example["MAX_AGE"] + ahead
    assert run.policy.version == run.steps


def test_rollouts_reach_the_learner_as_they_were_written(example):
    policy = example["Policy"]()
    written = [policy.write(np.random.default_rng(number)) for number in range(64)]
    buffer = pyecho.EchoBuffer(
        example["SPEC"], batch_size=8, factor=1, shuffle_buffer=16, slots_ahead=64, with_info=True
    )
    for rollout in written:
        buffer.put(rollout, timeout=10)
        if rollout is written[-1]:
            buffer.close()
    for batch, info in buffer:
        for row, number in enumerate(info.source_index):
            assert batch["tokens"].row(row).tolist() == written[number]["tokens"].tolist()
            assert batch["logp"].row(row).tolist() == written[number]["logp"].tolist()
            assert batch["reward"][row] == written[number]["reward"]


def test_learning_raises_the_reward(example):
    run = example["Run"](pyecho.Adaptive(8))
    before = run.score(300)
    run.learn(600, seconds=2e-4)
    assert run.score(300) > before
