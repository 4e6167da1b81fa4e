"""The runner of the peers without any process: the work, the roster, environments, statistics."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REQUIREMENTS = BENCHMARKS / "peers" / "requirements"
SMALL = {"shape": (64,), "rows": 1024, "pool": 512, "factor": 4, "batch": 128, "threads": 2}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


class NoProgress:
    def begin(self, name, steps):
        pass

    def advance(self, what):
        pass


def small_work(**changes):
    from peers.workload import Work

    return Work(**{"title": "small", "kind": "examples", **SMALL, **changes})


# The work


@pytest.mark.parametrize("threads", [1, 2, 3, 6, 16])
def test_planned_work_divides_among_any_number_of_cores(threads):
    from peers.workloads import PLANNED

    for planned in PLANNED:
        work = planned.work(threads)
        assert work.pool % (work.batch * threads) == 0
        assert work.rows % work.pool == 0
        assert work.period * work.batch == work.pool * work.factor


def test_work_that_would_leave_short_batches_is_refused():
    with pytest.raises(ValueError, match="divide"):
        small_work(pool=500)
    with pytest.raises(ValueError, match="8 bytes"):
        small_work(shape=(2, 2))


def test_work_survives_the_protocol():
    from peers.workload import Work

    work = small_work(shape=(4, 4, 4))
    assert Work.from_json(json.loads(json.dumps(work.as_json()))) == work


def test_every_row_of_the_source_has_its_number_and_no_page_is_unwritten():
    from peers.workload import Source, ids

    source = Source(small_work(shape=(5000,)))
    assert ids(source.rows).tolist() == list(range(1024))
    assert source.rows[:, ::4096].any(axis=0).all()
    assert len(np.unique(source.rows[7, 8:])) > 200


def test_the_source_is_read_in_order_as_often_as_asked():
    from peers.workload import Source, ids

    source = Source(small_work())
    source.passes = 2
    read = np.concatenate([ids(chunk) for chunk in source.chunks(128)])
    assert read.tolist() == [*range(1024), *range(1024)]
    source.passes = None
    chunks = source.chunks(512)
    assert [int(ids(next(chunks))[0]) for _ in range(5)] == [0, 512, 0, 512, 0]


def test_a_finding_tells_exact_output_from_other_output():
    from peers.workload import Finding

    work = small_work(rows=256, pool=256, batch=64)
    unshuffled = np.repeat(np.arange(256), 4)
    finding = Finding.of(work, unshuffled)
    assert finding.exact
    assert finding.uses == (4, 4)
    assert finding.distinct == 1 / 4
    assert finding.mixing < 0.01
    shuffled = np.random.default_rng(1).permutation(unshuffled)
    finding = Finding.of(work, shuffled)
    assert finding.exact
    assert finding.distinct > 0.8
    assert finding.mixing > 0.2
    assert Finding.of(work, shuffled[1:]).uses == (3, 4)
    assert not Finding.of(work, shuffled[1:]).exact
    assert not Finding.of(work, np.append(shuffled, 256)).exact


# The roster


def test_every_contestant_has_its_file_its_functions_and_its_packages():
    from peers.roster import CONTESTANTS

    assert len({each.name for each in CONTESTANTS}) == len(CONTESTANTS)
    for each in CONTESTANTS:
        tree = ast.parse((BENCHMARKS / "peers/contestants" / f"{each.module}.py").read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        wanted = {each.examples, each.batches} - {""}
        assert wanted
        assert wanted <= functions
        if each.requirements:
            assert each.package in (REQUIREMENTS / each.requirements).read_text()


def test_requirements_are_pinned_and_torch_is_the_one_that_all_use():
    constraint = (BENCHMARKS.parent / "constraints.txt").read_text().split()
    for table in REQUIREMENTS.glob("*.txt"):
        for line in table.read_text().split():
            assert "==" in line
            if line.startswith("torch=="):
                assert line in constraint


# Environments


class Pip:
    """Stands for the commands; makes what `venv` would."""

    def __init__(self, error=""):
        self.commands = []
        self.error = error

    def __call__(self, command):
        self.commands.append(command)
        if command[1:3] == ["-m", "venv"]:
            python = Path(command[3]) / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.touch()
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.CompletedProcess(command, bool(self.error), "", self.error)


@pytest.fixture
def tables(tmp_path):
    folder = tmp_path / "requirements"
    folder.mkdir()
    (folder / "some.txt").write_text("some==1\n")
    (tmp_path / "constraints.txt").write_text("other==2\n")
    return folder


def environments(tables, pip):
    from peers.environments import Environments

    return Environments(
        tables.parent / "cache",
        pip,
        requirements=tables,
        constraints=tables.parent / "constraints.txt",
    )


def test_an_environment_is_made_once_and_again_when_its_table_changes(tables):
    pip = Pip()
    python = environments(tables, pip).python("some.txt")
    assert python == tables.parent / "cache" / "some" / "bin" / "python"
    assert len(pip.commands) == 2
    assert str(tables / "some.txt") in pip.commands[1]
    assert str(tables.parent / "constraints.txt") in pip.commands[1]
    environments(tables, pip).python("some.txt")
    assert len(pip.commands) == 2
    (tables / "some.txt").write_text("some==3\n")
    environments(tables, pip).python("some.txt")
    assert len(pip.commands) == 4


def test_no_table_means_the_interpreter_that_runs_this(tables):
    pip = Pip()
    assert environments(tables, pip).python("") == Path(sys.executable)
    assert not pip.commands


def test_a_failed_install_says_why_leaves_nothing_and_is_not_tried_twice(tables):
    from peers.environments import EnvironmentFailed

    pip = Pip("Collecting some\nERROR: No matching distribution found for some==1\n\n")
    made = environments(tables, pip)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed, match=r"^No matching distribution .* some==1$"):
            made.python("some.txt")
    assert len(pip.commands) == 2
    assert not (tables.parent / "cache" / "some").exists()


# Measuring


class FakeProcess:
    """A contestant with so many batches in a second."""

    def __init__(self, rate, *, exact=True, fails_after=None, one_thread_rate=None):
        self.rates = {1: one_thread_rate or rate, 2: rate}
        self.exact = exact
        self.left = fails_after
        self.threads = 0
        self.asked = []

    def ask(self, do, **arguments):
        from peers.process import WorkerFailed

        self.asked.append(do)
        if do == "prepare":
            self.threads = arguments["work"]["threads"]
        elif do == "check":
            uses = [4, 4] if self.exact else [3, 5]
            return {"exact": self.exact, "uses": uses, "distinct": 1.0, "mixing": 0.3}
        elif do == "measure":
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise WorkerFailed("out of memory")
            seconds = arguments["batches"] / self.rates[self.threads]
            return {"seconds": seconds, "idle_cpu_share": None}
        return {}


def measured(processes, rounds=3, **changes):
    from peers.measuring import measure
    from peers.roster import Contestant

    options = {"module": "m", "examples": "f"}
    contestants = [
        Contestant(name, name, **{**options, **changes.get(name, {})}) for name in processes
    ]
    return measure(small_work(), processes, contestants, NoProgress(), rounds=rounds, seconds=1.0)


def test_rates_are_compared_round_by_round():
    processes = {"a": FakeProcess(1000.0), "b": FakeProcess(250.0)}
    outcome = measured(processes)
    assert outcome.rate("a").values == pytest.approx((128_000.0,) * 3)
    assert outcome.faster("a", "b").values == pytest.approx((4.0,) * 3)
    assert outcome.faster("a", "nobody") is None
    assert processes["a"].asked[-1] == "release"


def test_who_fails_is_out_with_a_reason_and_the_others_begin_anew():
    processes = {"a": FakeProcess(1000.0), "b": FakeProcess(1000.0, fails_after=5)}
    outcome = measured(processes)
    assert len(outcome.rate("a").values) == 3
    assert outcome.rate("b") is None
    assert outcome.results["b"].failure == "out of memory"


def test_who_breaks_the_promise_of_exact_uses_is_out():
    processes = {"a": FakeProcess(1000.0, exact=False), "b": FakeProcess(1000.0, exact=False)}
    outcome = measured(processes, b={"exact": False})
    assert outcome.results["a"].failure == "examples were used 3 to 5 times, not 4"
    assert not outcome.results["b"].failure


def test_the_faster_number_of_threads_is_used():
    processes = {
        "a": FakeProcess(1000.0, one_thread_rate=3000.0),
        "b": FakeProcess(1000.0, one_thread_rate=100.0),
        "c": FakeProcess(1000.0, one_thread_rate=3000.0),
    }
    outcome = measured(processes, a={"tuned": True}, b={"tuned": True})
    assert [outcome.results[name].threads for name in "abc"] == [1, 2, 2]
    assert outcome.rate("a").median == pytest.approx(128 * 3000.0)


@pytest.mark.parametrize(
    ("rate", "expected"), [(1.0, 16), (100.0, 96), (1e6, 1_000_000), (64.0, 64)]
)
def test_whole_periods_that_take_about_as_long_as_wanted_are_timed(rate, expected):
    from peers.measuring import batches_for

    batches = batches_for(lambda number: number / rate, 16, 1.0)
    assert batches == expected
    assert batches % 16 == 0


# The command


def test_arguments_have_names_and_defaults():
    from peers.command import parsed_arguments

    options = parsed_arguments([])
    assert options.rounds >= 5
    assert options.seconds >= 1.0
    options = parsed_arguments(["--quick", "--rounds", "3", "--only", "grain, spdl"])
    assert (options.rounds, options.only) == (3, ("grain", "spdl"))
    assert options.seconds < 1.0
    for wrong in (["--only", "nobody"], ["--rounds", "0"], ["--work", ""]):
        with pytest.raises(SystemExit):
            parsed_arguments(wrong)
