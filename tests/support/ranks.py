"""Runs a program as the processes of a job, each a rank with gloo."""

import json
import multiprocessing
import os
import runpy
import socket
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

LIMIT_SECONDS = 200
# A rank that hangs shows where, and ends.
PRELUDE = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT_SECONDS}, exit=True)\n"

# Ranks are forked from a process that has imported PyTorch, which takes longer than what they do.
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["torch.distributed.checkpoint", "pyecho.torch.distributed"])


class Job:
    """The processes of a job, by rank."""

    def __init__(self, processes, folder):
        self.processes = processes
        self._folder = folder

    def results(self):
        """Wait for all ranks, and return the JSON of each one's last line, None without a line."""
        for process in self.processes:
            process.join(LIMIT_SECONDS + 60)
        codes = [process.exitcode for process in self.processes]
        assert codes == [0] * len(codes), "\n".join(
            f"rank {rank}: {code}\n{(self._folder / f'errors{rank}').read_text()}"
            for rank, code in enumerate(codes)
        )
        printed = [(self._folder / f"output{rank}").read_text() for rank in range(len(codes))]
        return [json.loads(text.splitlines()[-1]) if text else None for text in printed]

    def kill(self):
        """Kill all ranks."""
        for process in self.processes:
            process.kill()
            process.join()


def _run(script, arguments, environment, folder):
    """Run a script in this process, which was made for it."""
    import torch

    torch.set_num_threads(1)
    multiprocessing.set_start_method("fork", force=True)  # of workers of a DataLoader
    os.environ.update(environment)
    rank = environment["RANK"]
    for name, file in (("output", sys.stdout), ("errors", sys.stderr)):
        with (folder / f"{name}{rank}").open("w") as log:
            os.dup2(log.fileno(), file.fileno())
    sys.argv = [str(script), *map(str, arguments)]
    runpy.run_path(str(script), run_name="__main__")


@contextmanager
def start_ranks(program, *arguments, ranks=2):
    """Start a program as so many ranks. The job is killed where the block ends."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        script = folder / "program.py"
        script.write_text(PRELUDE + program)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))  # bound until the job ends, so no other job gets this port
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
            "WORLD_SIZE": str(ranks),
        }
        job = Job([], folder)
        try:
            for rank in range(ranks):
                own = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                process = _server.Process(target=_run, args=(script, arguments, own, folder))
                process.start()
                job.processes.append(process)
            yield job
        finally:
            job.kill()


def run_ranks(program, *arguments, ranks=2):
    """Run a program as so many ranks; return the JSON of each one's last line."""
    with start_ranks(program, *arguments, ranks=ranks) as job:
        return job.results()
