"""Kills the process of a loader at random moments, and has others exit in the middle of an epoch.

Nothing may be left: no process, nothing in /dev/shm.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from waiting import wait_until

SCRIPT = """
import sys
sys.path.insert(0, {support!r})
from worked import Slow
import pyecho

if __name__ == "__main__":
    loader = pyecho.EchoLoader(Slow(10**6), 2, batch_size=4, num_workers=2, **{options!r})
    for number, batch in enumerate(loader):
        if number == 3:
            print("running", flush=True)
        if number == {last}:
            break
"""


def processes_of(group: int) -> list[int]:
    """Return the processes of a process group that still run."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, members = status.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(members) == group and state not in "ZX":
            found.append(int(status.parent.name))
    return found


def started(path: Path, last: int, **options: object) -> subprocess.Popen[str]:
    """Start a loader in a process group of its own, which ends after a batch of this number."""
    support = str(Path(__file__).parent)
    path.write_text(SCRIPT.format(support=support, options=options, last=last))
    command = [sys.executable, "-I", "-W", "error", str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, start_new_session=True, **pipes)


def left_after(process: subprocess.Popen[str], seconds: float = 10.0) -> list[int]:
    """Return the processes that are left some time after the end of the first one."""
    deadline = time.monotonic() + seconds
    while (found := processes_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def left_in_shm(before: set[Path]) -> list[Path]:
    """Return what has come into /dev/shm and stays; other tests' files go."""
    new = set(Path("/dev/shm").iterdir()) - before
    wait_until(lambda: not any(each.exists() for each in new))
    return [each for each in new if each.exists()]


def killed(path: Path, times: int, seed: int = 0, **options: object) -> None:
    """Kill that process so many times."""
    rng, before = random.Random(seed), set(Path("/dev/shm").iterdir())
    for _ in range(times):
        process = started(path, -1, **options)
        if rng.random() < 0.7:
            assert process.stdout.readline() == "running\n", process.communicate()
        time.sleep(rng.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        process.communicate()  # a worker would keep the pipes open
        assert not left_after(process)
    assert not left_in_shm(before)


def exited(path: Path, times: int, seed: int = 0, **options: object) -> None:
    """Have that process exit in the middle of an epoch so many times."""
    rng, before = random.Random(seed), set(Path("/dev/shm").iterdir())
    for _ in range(times):
        process = started(path, rng.randrange(60), **options)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, ""), errors
        assert not left_after(process)
    assert not left_in_shm(before)
