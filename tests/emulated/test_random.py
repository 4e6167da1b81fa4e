"""Random schedules, failures at each call, and ends of programs, each in processes of their own."""

import os
import random
import signal

import pytest

STRESS = os.environ.get("PYECHO_STRESS", "") not in ("", "0")
SCHEDULES = 10_000 if STRESS else 60
AT_ONCE = 200 if STRESS else 30
EXITS = 200 if STRESS else 7
WAYS = [
    "batches",
    "host",
    "device",
    "converted",
    "converted batches",
    "augmented batches",
    "augmented",
    "host's augment",
    "own copies",
    "batches made there",
]
HOW = ["end", "exit", "error", "interrupt", "fork", "close", "thread"]


@pytest.mark.parametrize("first", range(0, SCHEDULES, AT_ONCE))
def test_schedules(program, first):
    devices = 1 + first // AT_ONCE % 2
    ended = program("schedules.py", first, AT_ONCE, devices=devices, delay_us=300, seed=first)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{AT_ONCE} schedules, 0 wrong" in ended.stdout


@pytest.mark.parametrize("way", WAYS if STRESS else ["device", "augmented batches"])
def test_each_call_may_fail(program, way):
    ended = program("failures.py", way, devices=1)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith("right")


@pytest.mark.parametrize("function", ["copy", "kernel", "cudaMemcpyAsync", "cudaStreamWaitEvent"])
@pytest.mark.parametrize("way", WAYS if STRESS else ["batches", "device"])
@pytest.mark.parametrize("nth", [1, 2, 9] if STRESS else [2])
def test_a_device_that_is_lost_ends_the_loader(program, way, function, nth):
    ended = program("failures.py", way, function, nth, seconds=60, devices=1)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout == "right\n"


@pytest.mark.parametrize("seed", range(EXITS))
def test_ends_with_uploads_under_way(program, seed):
    chance = random.Random(seed)
    way, how = chance.choice(WAYS), HOW[seed % len(HOW)]
    ended = program("exits.py", way, how, seed, seconds=60, devices=1 + seed % 2)
    expected = {"error": 1, "interrupt": 130}
    about = f"{way}, {how}: {ended.stdout}{ended.stderr}"
    assert ended.returncode in (expected.get(how, 0), -signal.SIGINT * (how == "interrupt")), about
    last = ended.stderr.strip().splitlines()[-1:]
    wanted = {"error": ["ArithmeticError: on purpose"], "interrupt": ["KeyboardInterrupt"]}
    assert last == wanted.get(how, []), about
