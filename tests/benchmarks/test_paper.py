"""The experiments of the paper: all that is decided without training."""

import dataclasses
import gzip
import json
import math
from itertools import islice
from pathlib import Path

import numpy as np
import pytest


def curve(*held_out):
    from paper.train import Point

    return [Point(20 * n, 700 * n, 0.5 * n, value) for n, value in enumerate(held_out, start=1)]


def result(fresh=1000.0, seconds=10.0, *, reached=True, held_out=0.3):
    from paper.train import Result

    if not reached:
        return Result(held_out=held_out, curve=curve(held_out))
    return Result(
        True, fresh, 0.9 * fresh, 50.0, seconds, held_out, 0.01, 0.06, 11.0, curve(held_out)
    )


def fashion(variant="before", factor=2):
    from paper.experiments import condition

    return condition("fashion", variant, factor)


def job(**changes):
    from paper.conditions import Job
    from paper.experiments import to_target

    return dataclasses.replace(Job(fashion(), to_target(fashion()), 0.1, 1), **changes)


@pytest.mark.parametrize(
    ("held_out", "expected"),
    [
        ((0.9, 0.5, 0.3, 0.1), (50.0, 1750.0, 1.25)),
        ((0.5, 0.3, 0.5, 0.3), (30.0, 1050.0, 0.75)),
        ((0.4,), (20, 700, 0.5)),
        ((0.5, 0.41), None),
        ((), None),
    ],
)
def test_the_first_crossing_of_the_target_lies_between_two_tests(held_out, expected):
    from paper.train import crossing

    assert crossing(curve(*held_out), 0.4) == expected


def test_a_key_changes_with_everything_that_a_run_depends_on():
    from paper.conditions import Goal

    base = job()
    of = dataclasses.replace
    others = [
        job(rate=0.2),
        job(seed=2),
        job(timed=True),
        job(goal=Goal(None, base.goal.budget)),
        job(goal=Goal(base.goal.target, 7)),
        *(
            job(condition=of(base.condition, **{name: value}))
            for name, value in {
                "workload": "text",
                "variant": "after",
                "factor": 3,
                "batch_size": 64,
                "shuffle_buffer": 7,
            }.items()
        ),
    ]
    keys = {base.key("data"), base.key("other data"), *(other.key("data") for other in others)}
    assert len(keys) == 2 + len(others)
    assert job().key("data") == base.key("data")


def new_store(path, machine="a cpu"):
    from paper.store import Store

    return Store(
        path / "cache" / "runs.jsonl", {"fashion": "f", "fashion-more": "m", "text": "t"}, machine
    )


def test_results_are_found_again_and_only_timed_ones_belong_to_a_machine(tmp_path):
    store = new_store(tmp_path)
    assert store.get(job()) is None
    store.put(job(), result())
    store.put(job(timed=True), result())
    store.put(job(seed=2), result(reached=False))
    for each in (store, new_store(tmp_path), new_store(tmp_path, "another cpu")):
        assert each.get(job()) == result()
        assert math.isnan(each.get(job(seed=2)).fresh)
        assert each.get(job(seed=3)) is None
    assert new_store(tmp_path).get(job(timed=True)) is not None
    assert new_store(tmp_path, "another cpu").get(job(timed=True)) is None


def test_a_torn_line_costs_one_result(tmp_path):
    store = new_store(tmp_path)
    store.put(job(seed=1), result(1.0))
    store.put(job(seed=2), result(2.0))
    file = tmp_path / "cache" / "runs.jsonl"
    file.write_text(file.read_text()[:-40])
    new_store(tmp_path).put(job(seed=3), result(3.0))
    last = new_store(tmp_path)
    assert [last.get(job(seed=seed)) is None for seed in (1, 2, 3)] == [False, True, False]


class Watcher:
    def __init__(self):
        self.known = []

    def finished(self, job, result, *, known):
        self.known.append(known)

    def passed(self, seconds):
        pass


def test_what_is_done_is_not_done_again(tmp_path):
    from paper.running import doing

    executed = []

    def execute(each):
        executed.append(each.seed)
        if each.seed == 3:
            raise KeyboardInterrupt
        return result(each.seed)

    first = doing(new_store(tmp_path), execute, Watcher())
    for seed in (1, 2):
        first(job(seed=seed))
    with pytest.raises(KeyboardInterrupt):
        first(job(seed=3))
    watcher = Watcher()
    again = doing(new_store(tmp_path), lambda each: result(each.seed), watcher)
    assert [again(job(seed=seed)).fresh for seed in (1, 2, 3)] == [1, 2, 3]
    assert watcher.known == [True, True, False]
    assert executed == [1, 2, 3]


@pytest.mark.parametrize(
    ("cost_of", "tried", "chosen"),
    [
        (lambda doublings: abs(doublings + 0.4), [0, -1, 1], 0),
        (lambda doublings: abs(doublings - 2.1), [0, -1, 1, 2, 3], 2),
        (lambda doublings: abs(doublings + 3), [0, -1, -2, -3, -4], -3),
        (lambda doublings: 2.0 if doublings in (-1, 0) else 3.0, [0, -1, -2], -1),
        (lambda doublings: 5.0 if doublings == -2 else math.inf, [0, -1, 1, -2, -3], -2),
    ],
)
def test_the_rate_with_two_worse_neighbours_is_chosen_and_the_lower_of_equals(
    cost_of, tried, chosen
):
    from paper.tuning import best, next_doublings

    costs = {}
    while (doublings := next_doublings(costs)) is not None:
        costs[doublings] = cost_of(doublings)
    assert sorted(costs) == sorted(tried)
    assert best(costs) == chosen


def test_a_trial_ends_when_it_cannot_win():
    from paper.conditions import Goal
    from paper.tuning import raced

    assert raced(job(), {}, 20) == job()
    assert raced(job(), {0: math.inf}, 20) == job()
    assert raced(job(), {0: 5000.0, 1: math.inf}, 20).goal == Goal(job().goal.target, 5080)
    quality = job(goal=Goal(None, 100))
    assert raced(quality, {0: 0.2}, 20) == quality


def test_rates_are_tuned_with_a_seed_that_is_not_reported():
    from paper.experiments import entries
    from paper.plan import planned, tune

    plan = planned(entries("3", full=False), seeds=3)
    seeds = []

    def do(each):
        seeds.append(each.seed)
        return result(1000 * (1 + abs(math.log2(each.rate / 0.05))))

    costs = tune(plan.untimed[0], do)
    assert set(seeds) == {0}
    assert list(plan.seeds) == [1, 2, 3]
    assert sorted(costs) == [-1, 0, 1]


def test_figures_share_their_runs():
    from paper.experiments import FIGURES, entries
    from paper.plan import planned, total_seconds

    every = entries(FIGURES, full=True)
    plan = planned(every, seeds=5)
    assert len(plan.tuned) == len(set(plan.tuned))
    assert len(plan.tuned) < len(every)
    assert {setting.condition.factor for setting in plan.timed} == {1, 2, 3, 4, 5}
    assert set(plan.timed) <= set(plan.tuned)
    assert total_seconds(plan, 1) > total_seconds(plan, 2) > total_seconds(planned(every, 3), 2)


@pytest.mark.parametrize("full", [False, True])
def test_baselines_have_a_factor_of_one_and_the_same_loader(full):
    from paper.experiments import FIGURES, entries

    for entry in entries(FIGURES, full=full):
        base, of = entry.baseline, entry.condition
        assert (base.workload, base.batch_size) == (of.workload, of.batch_size)
        assert base.factor == 1 or entry.figure == "drift"
        assert base.shuffle_buffer == 10 * base.batch_size
        if of.variant != "batch" and entry.figure != "7":
            assert of.shuffle_buffer == base.shuffle_buffer


def test_with_a_drifting_source_an_adaptive_factor_leaves_neither_side_waiting():
    import numpy as np
    from paper import drift
    from paper.conditions import Condition

    class Numbers:
        def __init__(self):
            self.arrays = {"number": np.arange(1000)}

        def orders(self, seed):
            while True:
                yield from range(1000)

        def augment(self, batch, rng):
            return batch

    def after_forty_minutes(variant, factor):
        condition = Condition("fashion", variant, factor, 8, 80, drifts=True)
        loader = drift.DriftingLoader(Numbers(), condition, seed=1)
        next(batch for batch in loader.last if loader.clock() > 2400)
        return loader.fresh, loader.waited

    read_at_most, _ = after_forty_minutes("before", 1)  # which never holds up the source
    read, waited = after_forty_minutes("adaptive", 8)
    assert read > 0.99 * read_at_most
    assert waited < 24
    for factor in (2, 4, 8):
        read, waited = after_forty_minutes("before", factor)
        assert read < 0.9 * read_at_most or waited > 240


def all_marks(results, figures=("3",)):
    from paper.experiments import entries
    from paper.plan import planned
    from paper.summary import marks

    every = entries(figures, full=False)
    costs = {setting: {0: 1.0, 1: math.inf} for setting in planned(every, 3).tuned}
    return marks(every, results, costs)


def by_variant(condition, entry):
    fresh = {"batch": 900, "after": 700, "before": 600}[condition.variant]
    fresh = 1000 if condition.factor == 1 else fresh
    return [result(fresh + extra) for extra in (-10, 0, 20)]


def test_ratios_are_taken_seed_by_seed():
    found = [mark for mark in all_marks(by_variant) if mark.entry.series == "fashion"]
    expected = [
        [(fresh + extra) / (1000 + extra) for extra in (-10, 0, 20)]
        for fresh in (1000, 900, 700, 600)
    ]
    assert [list(mark.measured.values) for mark in found] == [
        pytest.approx(values) for values in expected
    ]
    assert [mark.entry.paper for mark in found] == [1.0, 0.848, 0.657, 0.576]


def test_findings_name_the_order_of_the_variants():
    from paper.summary import findings

    [found, *_] = [text for text in findings(all_marks(by_variant)) if "fashion" in text]
    assert "before needs fewer fresh examples than after (0.60, 0.70)" in found


@pytest.mark.parametrize(
    ("missed", "reason"),
    [
        (lambda condition: condition.variant == "after", "2 of 3 runs reached the target"),
        (lambda condition: condition.factor == 1, "the baseline has not reached the target"),
    ],
    ids=["a variant", "the baseline"],
)
def test_nothing_is_compared_where_a_seed_missed_the_target(missed, reason):
    from paper.summary import findings

    def results(condition, entry):
        found = by_variant(condition, entry)
        return [*found[:2], result(reached=False)] if missed(condition) else found

    marks = all_marks(results)
    assert any(reason in text for text in findings(marks))
    assert all(mark.measured is None for mark in marks if missed(mark.entry.condition))


def test_a_report_shows_every_mark(tmp_path):
    from paper import figures, report
    from paper.summary import findings

    def results(condition, entry):
        return [result(1000 / condition.factor, 10 / condition.factor) for _ in range(3)]

    found = all_marks(results, ("3", "4", "5", "6", "7", "quality"))
    assert not any(
        mark.measured is None for mark in found if mark.entry.condition.workload == "fashion"
    )
    drawn = {"3": tmp_path / "a-fig3.png"}
    markdown = report.as_markdown({"cpu": "x"}, found, findings(found), drawn)
    document = report.as_json({"cpu": "x"}, found, findings(found))
    paths = report.write(tmp_path, "a", document, markdown)
    assert [path.name for path in paths] == ["a.json", "a.md"]
    assert json.loads(paths[0].read_text())["marks"][0]["paper"] == 1.0
    table = [line for line in markdown.splitlines() if line.startswith("| fashion |")]
    assert len(table) == sum(mark.entry.condition.workload == "fashion" for mark in found)
    assert "![Fig. 3: fresh examples to the target at e = 2](a-fig3.png)" in markdown
    assert figures.FIGURES.keys() == {"3", "4", "5", "6", "7", "drift", "quality"}


def test_the_split_of_text_does_not_depend_on_other_files(tmp_path):
    from paper.data import DataError, read_windows, text_files

    for number in range(60):
        (tmp_path / f"{number}.txt").write_bytes(bytes([number]) * 100)
    train, held_out = text_files(tmp_path)
    assert len(train) + len(held_out) == 60
    assert held_out
    train[0].unlink()
    assert text_files(tmp_path) == (train[1:], held_out)
    windows = read_windows(train[1:], 10, 100, seed=0)
    assert windows.shape == (100, 10)
    assert (windows == read_windows(train[1:], 10, 100, seed=0)).all()
    with pytest.raises(DataError, match="larger folder with --text"):
        read_windows(train[1:], 10, 10_000, seed=0)


def test_images_are_read_from_the_idx_format(tmp_path):
    from paper.data import DataError, read_idx

    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = b"\0\0\x08\x03" + np.array(values.shape, ">u4").tobytes()
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(header + values.tobytes()))
    assert (read_idx(path) == values).all()
    path.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(DataError, match="IDX"):
        read_idx(path)


def test_missing_data_name_the_option(tmp_path, monkeypatch):
    from paper import data

    with pytest.raises(data.DataError, match=r"--fashion-mnist .* needs the four files"):
        data.fashion_folder(tmp_path, tmp_path / "cache")
    monkeypatch.setattr(data, "INSIDE_PACKAGE", Path("nowhere/at/all"))
    monkeypatch.setattr(data.shutil, "which", lambda program: None)
    with pytest.raises(data.DataError, match=r"without apt-get: .* --fashion-mnist DIR"):
        data.fashion_folder(None, tmp_path / "cache")


def test_batches_are_in_the_order_of_the_images_of_the_network():
    from paper.workload import Workload

    class Numbers(Workload):
        network = optimizer = loss = held_out = None

        def __init__(self):
            self.arrays = {"x": np.arange(10)}

    batches = list(islice(Numbers().batches(4, seed=3), 5))
    orders = [np.random.default_rng([3, epoch]).permutation(10) for epoch in range(2)]
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == [*orders[0], *orders[1]]
    assert not Numbers().augmented


def test_training_over_the_network_is_the_same_training(tmp_path):
    import torch
    from paper.conditions import Goal
    from paper.fashion import Fashion
    from paper.network import Network
    from paper.train import train

    images = np.random.default_rng(0).integers(256, size=(48, 1, 28, 28), dtype=np.uint8)

    class Noise(Fashion):
        def __init__(self):
            self.arrays = {"image": images, "label": np.arange(48) % 10}
            self.data = "noise"

        def network(self):
            return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))

        def held_out(self, network):
            return float(sum(parameter.double().sum() for parameter in network.parameters()))

    condition = dataclasses.replace(fashion(), batch_size=8, shuffle_buffer=16)
    each = job(condition=condition, goal=Goal(None, 400))
    usual = train(Noise(), each)
    with Network(Noise(), tmp_path) as network:
        slow = network.train(each, bandwidth=2e6)
        assert network.train(each, bandwidth=2e6).held_out == slow.held_out
    assert [point.step for point in usual.curve] == [50, 100]
    assert [point.held_out for point in slow.curve] == [point.held_out for point in usual.curve]
