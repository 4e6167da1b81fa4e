"""Failures of CUDA in a loader: `failures.py WAY` or `failures.py WAY FUNCTION NTH`.

The first form has each function fail at each of its calls in an epoch, once; the epoch ends with an
error, or is right, and the next one is right. In the second form every call fails from the NTH one
of a function on, as on a device that is lost; "copy" or "kernel" for FUNCTION fails as it runs.
Calls without which PyTorch ends the process go on to work.
Then what has been taken is right, and the loader ends with an error.
"""

import sys

import torch
from cuda_emulator import control
from schedules import ABORTING, DEVICE, FAILED, Schedule, left


def each_once(way):
    torch.zeros(1, device=DEVICE)
    before = left()
    schedule = Schedule(3, way, items=6)
    schedule.epoch(0)
    start = control.calls()
    schedule.epoch(1)
    called = control.calls() - start
    assert called
    for name in sorted(set(called) - ABORTING):
        for nth in range(1, called[name] + 1):
            schedule.failing(name, nth)
            schedule.epoch(2)
    schedule.loader.close()
    del schedule
    after = left()
    assert all(after[name] <= before[name] for name in before), (before, after)
    print("right", sum(FAILED.values()), "failures of", *FAILED)


def for_good(way, function, nth):
    schedule = Schedule(3, way, items=6)
    schedule.epoch(0)
    control.spare(ABORTING)
    if function in ("copy", "kernel"):
        control.fail_running(function, nth)
    else:
        control.fail(function, nth, control.ILLEGAL_ADDRESS, sticky=True)
    try:
        for _ in range(3):
            for batch in schedule.loader:
                schedule.used(batch)
            torch.cuda.synchronize(DEVICE)
    except RuntimeError as error:
        print("right" if "CUDA" in str(error) else error, flush=True)
    else:
        print("there was no error")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        each_once(sys.argv[1])
    else:
        for_good(sys.argv[1], sys.argv[2], int(sys.argv[3]))
