"""Programs that are killed and go on from their last state, with other threads."""

import hashlib
import pickle
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
from resuming import Consumer, Scenario
from scripts import PRELUDE

pytestmark = pytest.mark.slow

PROGRAM = """
import pickle, random, signal, time, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {support!r})
from resuming import END, STATEFUL, Consumer, Scenario

lines_file, saved, seed, first, adaptive = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

def run(number):
    scenario, draw = Scenario(seed, adaptive=adaptive), random.Random(seed * 1000 + number)
    loader = scenario.loader(draw)
    lines, log = [], {{}}
    if os.path.exists(saved):
        state, done, log = pickle.load(open(saved, "rb"))
        loader.load_state_dict(state)
        lines = open(lines_file).read().splitlines()[:done]
    with open(lines_file, "w") as out:
        out.writelines(line + "\\n" for line in lines)

    def save(state):
        with open(saved + ".new", "wb") as out:
            pickle.dump((state, len(lines), log | loader.stats().log), out)
        os.replace(saved + ".new", saved)

    consumer, until = Consumer(loader), len(lines) + draw.randint(1, 60)
    while lines.count(repr(END)) < scenario.iterations:
        if draw.random() < 0.2:
            payload = scenario.form in STATEFUL or draw.random() < 0.5
            save(loader.state_dict(payload=payload))
        if len(lines) >= until:
            os.kill(os.getpid(), signal.SIGKILL)
        if adaptive and draw.random() < 0.3:  # else timing decides nothing
            time.sleep(draw.random() * 2e-3)
        lines.append(repr(consumer.next()))
        with open(lines_file, "a") as out:
            out.write(lines[-1] + "\\n")
    save(None)
    loader.close()

for number in range(first, first + {runs}):
    child = os.fork()
    if child == 0:
        run(number)
        sys.exit()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != -signal.SIGKILL:
        sys.exit(code)
sys.exit({killed})
"""
RUNS = 8  # forks of a process, which all have its hashes
KILLED = 99  # exit code of a program whose runs were all killed


def hash_of(lines):
    return hashlib.blake2b("\n".join(lines).encode()).hexdigest()


def whole_stream(scenario, log):
    loader = scenario.loader(random.Random(0), log)
    lines = [repr(each) for each in Consumer(loader).take_all(scenario.iterations)]
    loader.close()
    return lines


def kills(seed, *, adaptive=False):
    """Run the program of a scenario until it is through. Return what it got, and what an
    uninterrupted one gets; of an adaptive factor, with the final log.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, lines, saved = folder / "program.py", folder / "lines", folder / "state"
        support = str(Path(__file__).parents[1] / "support")
        program.write_text(PRELUDE + PROGRAM.format(support=support, runs=RUNS, killed=KILLED))
        lines.touch()
        for first in range(0, 1000, RUNS):
            arguments = [program, lines, saved, seed, first, int(adaptive)]
            done = subprocess.run(
                [sys.executable, "-I", *map(str, arguments)],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            if done.returncode != KILLED:
                assert done.returncode == 0, (seed, done.stderr)
                break
        _, _, log = pickle.loads(saved.read_bytes())
        whole = whole_stream(Scenario(seed, adaptive=adaptive), log if adaptive else None)
        return hash_of(lines.read_text().splitlines()), hash_of(whole)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_killed_program_goes_on_as_if_nothing_had_been(seed, adaptive):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, expected = kills(seed, adaptive=adaptive)
    assert got == expected
