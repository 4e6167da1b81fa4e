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


class NoProgress:
    def begin(self, name, steps):
        pass

    def advance(self, what):
        pass


# The work


@pytest.mark.parametrize("threads", [1, 3, 16])
def test_planned_work_divides_among_any_number_of_cores(threads):
    from peers.workloads import PLANNED

    for planned in PLANNED:
        work = planned.work(threads)
        assert work.pool % (work.batch * threads) == 0
        assert work.rows % work.pool == 0
        assert work.period * work.batch == work.pool * work.factor


def test_work_survives_the_protocol_and_is_refused_if_it_leaves_short_batches(small_work):
    from peers.workload import Work

    work = small_work(shape=(4, 4, 4))
    assert Work.from_json(json.loads(json.dumps(work.as_json()))) == work
    for wrong, need in ({"pool": 500}, "divide"), ({"shape": (2, 2)}, "8 bytes"):
        with pytest.raises(ValueError, match=need):
            small_work(**wrong)


def test_a_finding_tells_exact_output_from_other_output(small_work):
    from peers.workload import Finding

    work = small_work(rows=256, pool=256, batch=64)
    unshuffled = np.repeat(np.arange(256), 4)
    finding = Finding.of(work, unshuffled)
    assert (finding.exact, finding.uses, finding.distinct) == (True, (4, 4), 1 / 4)
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
            assert line in constraint or not line.startswith("torch==")


# Environments


def test_an_environment_is_made_again_only_when_its_table_changes_or_an_install_failed(tmp_path):
    from peers.environments import EnvironmentFailed, Environments

    commands, errors = [], []

    def pip(command):
        """Stand for the commands; make what `venv` would."""
        commands.append(command)
        if command[1:3] == ["-m", "venv"]:
            (Path(command[3]) / "bin").mkdir(parents=True)
            (Path(command[3]) / "bin" / "python").touch()
            return subprocess.CompletedProcess(command, 0, "", "")
        return subprocess.CompletedProcess(command, len(errors), "", "".join(errors))

    def python(table):
        made = Environments(tmp_path / "cache", pip, requirements=tmp_path, constraints=constraints)
        return made.python(table)

    table, constraints = tmp_path / "some.txt", tmp_path / "constraints.txt"
    table.write_text("some==1\n")
    constraints.write_text("other==2\n")
    assert python("") == Path(sys.executable), "no table, no environment"
    for _ in range(2):
        assert python("some.txt") == tmp_path / "cache" / "some" / "bin" / "python"
        assert len(commands) == 2
    assert {str(table), str(constraints)} < set(commands[1])
    table.write_text("some==3\n")
    errors.append("Collecting some\nERROR: No matching distribution found for some==3\n\n")
    with pytest.raises(EnvironmentFailed, match=r"^No matching distribution .* some==3$"):
        python("some.txt")
    errors.clear()
    python("some.txt")
    assert len(commands) == 6


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


@pytest.fixture
def measured(small_work):
    from peers.measuring import measure
    from peers.roster import Contestant

    def measured(processes, **changes):
        contestants = [
            Contestant(name, name, module="m", examples="f", **changes.get(name, {}))
            for name in processes
        ]
        return measure(small_work(), processes, contestants, NoProgress(), rounds=3, seconds=1.0)

    return measured


def test_rates_are_compared_round_by_round(measured):
    processes = {"a": FakeProcess(1000.0), "b": FakeProcess(250.0)}
    outcome = measured(processes)
    assert outcome.rate("a").values == pytest.approx((128_000.0,) * 3)
    assert outcome.faster("a", "b").values == pytest.approx((4.0,) * 3)
    assert outcome.faster("a", "nobody") is None
    assert processes["a"].asked[-1] == "release"


def test_who_fails_or_breaks_the_promise_of_exact_uses_is_out_with_a_reason(measured):
    processes = {
        "a": FakeProcess(1000.0),
        "fails": FakeProcess(1000.0, fails_after=5),
        "inexact": FakeProcess(1000.0, exact=False),
        "never promised": FakeProcess(1000.0, exact=False),
    }
    outcome = measured(processes, **{"never promised": {"exact": False}})
    assert len(outcome.rate("a").values) == 3
    assert outcome.rate("fails") is None
    assert [outcome.results[name].failure for name in processes] == [
        "",
        "out of memory",
        "examples were used 3 to 5 times, not 4",
        "",
    ]


def test_the_faster_number_of_threads_is_used(measured):
    processes = {
        "a": FakeProcess(1000.0, one_thread_rate=3000.0),
        "b": FakeProcess(1000.0, one_thread_rate=100.0),
        "c": FakeProcess(1000.0, one_thread_rate=3000.0),
    }
    outcome = measured(processes, a={"tuned": True}, b={"tuned": True})
    assert [outcome.results[name].threads for name in "abc"] == [1, 2, 2]
    assert outcome.rate("a").median == pytest.approx(128 * 3000.0)


@pytest.mark.parametrize(("rate", "expected"), [(1.0, 16), (100.0, 96), (1e6, 1_000_000)])
def test_whole_periods_that_take_about_as_long_as_wanted_are_timed(rate, expected):
    from peers.measuring import batches_for

    assert batches_for(lambda number: number / rate, 16, 1.0) == expected


def test_wrong_arguments_are_refused(capsys):
    from peers.command import parsed_arguments

    assert parsed_arguments(["--only", "grain, spdl"]).only == ("grain", "spdl")
    for wrong in ("--only=nobody", "--rounds=0", "--work=", "--seconds=0", "--seconds=nan"):
        with pytest.raises(SystemExit):
            parsed_arguments([wrong])
        assert wrong.split("=")[0] in capsys.readouterr().err
