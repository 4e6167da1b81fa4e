"""The program of `exits.Nursery`: forks one interpreter for each script.

Arguments: folders for sys.path, separated by colons, then the modules to import. Reads a line of
JSON for each script and answers with one: exit code (None: it hung), stdout and stderr, and the
number of processes left behind.
"""

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = sys.argv[1].split(":")
for name in sys.argv[2:]:
    importlib.import_module(name)
gc.collect()
gc.freeze()  # the last collections of a child pass over it: an exit takes 0.1 s instead of 0.6

HANG_SECONDS = 30
ORPHAN_SECONDS = 10


def wait_for(pid):
    """Return the exit code. After a hang, return None and leave the tracebacks on stderr."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGABRT)  # faulthandler, on in dev mode, shows where it hangs
            os.waitpid(pid, 0)
            return None
        time.sleep(1e-3)


def alive_in_group(group):
    count = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        count += int(its_group) == group and state not in "ZX"
    return count


def orphans_of(group):
    deadline = time.monotonic() + ORPHAN_SECONDS
    while (count := alive_in_group(group)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if count:
        os.killpg(group, signal.SIGKILL)
    return count


script = None
for line in sys.stdin:
    script = json.loads(line)
    files = [tempfile.TemporaryFile() for _ in range(2)]  # noqa: SIM115  (stdout, stderr)
    pid = os.fork()
    if pid == 0:
        break
    code = wait_for(pid)
    answer = {"code": code, "orphans": orphans_of(pid)}
    for file in files:
        file.seek(0)
    answer["output"], answer["errors"] = (file.read().decode() for file in files)
    for file in files:
        file.close()
    print(json.dumps(answer), flush=True)
    script = None

if script is not None:  # in a child, which now ends like any interpreter
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, end in enumerate((nothing, files[0].fileno(), files[1].fileno())):
        os.dup2(end, number)
    os.close(nothing)
    for file in files:
        file.close()
    del file, files
    exec(compile(script, "script.py", "exec"))
