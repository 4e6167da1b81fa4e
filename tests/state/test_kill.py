"""Programs that are killed and go on from their last state, with other threads."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from resuming import Consumer, loader_of, noisy
from scripts import PRELUDE

from pyecho import Adaptive

pytestmark = pytest.mark.slow

CASES = {
    "linked": "'list', 40, factor=2.5, batch_size=4, shuffle_buffer=9, epochs=2, augment=noisy",
    "own state": "'stateful', 40, factor=2, batch_size=3, shuffle_buffer=9",
    "batches": "'cut', 40, factor=1.3, batch_size=5, shuffle_buffer=9, steps_per_epoch=9",
    "adaptive": "'iterated', 90, factor=Adaptive(5).replay(log), batch_size=4, shuffle_buffer=9",
}
PROGRAM = """
import pickle, random, signal, time
sys.path.insert(0, {support!r})
from pyecho import Adaptive
from resuming import END, Consumer, loader_of, noisy

lines_file, saved, first = sys.argv[1], sys.argv[2], int(sys.argv[3])

def run(number):
    draw, lines, log = random.Random(number), [], {{}}
    loader = loader_of({case}, threads=draw.choice([None, 0, 1, 3]))
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

    consumer, until = Consumer(loader), len(lines) + draw.randint(1, 20)
    while lines.count(repr(END)) < 2:
        if draw.random() < 0.2:
            save(loader.state_dict(payload={payload} or draw.random() < 0.5))
        if len(lines) >= until:
            os.kill(os.getpid(), signal.SIGKILL)
        if draw.random() < 0.3:  # else timing decides nothing
            time.sleep(draw.random() * 2e-3)
        lines.append(repr(consumer.next()))
        with open(lines_file, "a") as out:
            out.write(lines[-1] + "\\n")
    save(None)

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


def emitted(case, log):
    """Return what an uninterrupted program gets."""
    names = {"Adaptive": Adaptive, "log": log, "noisy": noisy, "loader_of": loader_of}
    with eval(f"loader_of({case})", names) as loader:
        return [repr(each) for each in Consumer(loader).take_all(2)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_killed_program_goes_on_as_if_nothing_had_been(case, tmp_path):
    program, lines, saved = (tmp_path / name for name in ("program.py", "lines", "state"))
    support = str(Path(__file__).parents[1] / "support")
    payload = "stateful" in case
    text = PROGRAM.format(support=support, case=case, payload=payload, runs=RUNS, killed=KILLED)
    program.write_text(PRELUDE + text)
    lines.touch()
    for first in range(0, 1000, RUNS):
        command = [sys.executable, "-I", *map(str, (program, lines, saved, first))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != KILLED:
            break
    assert done.returncode == 0, done.stderr
    _, _, log = pickle.loads(saved.read_bytes())
    assert lines.read_text().splitlines() == emitted(case, log)
