"""Run all that a change must pass, from a clean checkout: steps, two at a time.

The output of a step goes to build/ci, and is shown at the end if the step failed. A fault ends only
the steps that need the one that failed, so two faults take one run. Each line tells the seconds of
a step, and of the processors in it.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / "build/ci"
SLOTS = 2

STEPS = {  # name: command, and the step before it; in the order in which they begin
    "package": ("make .venv/package.stamp", None),
    "tools": ("make .venv/dev.stamp .venv/demo.stamp .venv/test.stamp", "package"),
    "asan-ubsan": ("make sanitize-asan-ubsan", "package"),
    "style": ("make style", "tools"),
    "python": ("make test-python", "tools"),
    "tsan": ("make sanitize-tsan", "package"),
    "models": ("make test-cpp-rest", "package"),
    "tidy": ("make tidy", "tools"),
    "examples": ("make examples", "package"),
    # Half a gigabyte that cannot be had everywhere.
    "cuda": ("if make .venv-cuda/torch.stamp; then make test-cuda; fi", "package"),
    "wheel": ("make test-wheel WHEEL=$(echo build/wheel/*.whl)", "package"),
    "benchmarks": ("make test-benchmarks", "tools"),
    "demo": ("make demo DEMO_ARGS='--factors 1,3 --seeds 1'", "tools"),
}
NATIVE = ["CMakeLists.txt", "CMakePresets.json", "cmake", "csrc", "include"]
ONLY_IF_CHANGED = {  # make nightly runs these in any case
    "asan-ubsan": [*NATIVE, "tests/cpp"],
    "tsan": [*NATIVE, "tests/cpp"],
    "models": [*NATIVE, "tests/cpp"],
    "tidy": [*NATIVE, "benchmarks/cpp"],
    "examples": [*NATIVE, "examples/embedding"],
    "benchmarks": ["benchmarks", "pyecho/bench", "tests/benchmarks"],
    "demo": ["Makefile", "pyecho/demo"],  # make test-python runs most of it
    "cuda": [
        *("pyecho/device", "pyecho/cuda.py", "pyecho/torch"),
        *("csrc/bindings/device", "csrc/bindings/stages/batches.cpp"),
        *("csrc/core/stage/batch_pool*", "csrc/core/stage/upload*"),
        *("tests/gpu", "tests/device", "tests/emulated", "tools/cuda_emulator"),
    ],
}


def main() -> int:
    """Run the steps; return how many failed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    os.environ["PIP_NO_COMPILE"] = "0"  # which is how pip wants to be told not to compile
    began, waiting, passed, failed = time.monotonic(), dict(STEPS), {None}, []
    for name, folders in ONLY_IF_CHANGED.items():
        if not changed(folders):
            print(f"{name:10} left out: nothing has changed there in the last day")
            del waiting[name]
    running = {}
    while waiting or running:
        ready = [name for name, (_, before) in waiting.items() if before in passed]
        if ready and len(running) < SLOTS:
            name = ready[0]
            process = begin(name, waiting.pop(name)[0])
            running[process.pid] = name, process, time.monotonic()
            continue
        if not running:
            print(f"left out: {', '.join(waiting)}")
            break
        pid, status, used = os.wait3(0)
        name, process, start = running.pop(pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        (failed.append if process.returncode else passed.add)(name)
        seconds, processor = time.monotonic() - start, used.ru_utime + used.ru_stime
        result = "FAILED" if process.returncode else "passed"
        print(f"{name:10} {result} {seconds:4.0f} s, processors {processor:4.0f} s", flush=True)
    print(f"all in {time.monotonic() - began:.0f} s")
    for name in failed:
        print(f"\n---------------- {name}: {STEPS[name][0]}")
        print((LOGS / f"{name}.log").read_text(errors="replace")[-20_000:])
    return len(failed)


def begin(name, command):
    """Begin a step, with a log of its own."""
    with (LOGS / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command, shell=True, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def changed(folders):
    """Return True if commits of the day before the last one touch these; also if none is known."""
    git = ["git", "-c", "core.fsmonitor=false", "log"]
    try:
        last = int(subprocess.check_output([*git, "-1", "--format=%ct"], cwd=ROOT))
        since = [f"--since={last - 86_400}", "--format=%h", "--", *folders]
        return subprocess.check_output([*git, *since], cwd=ROOT) != b""
    except (OSError, subprocess.CalledProcessError):
        return True


if __name__ == "__main__":
    sys.exit(main())
