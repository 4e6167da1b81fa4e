"""Runs a program as the processes of a job, each a rank with gloo."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

LIMIT_SECONDS = 200
# A rank that hangs shows where, and ends.
PRELUDE = f"import faulthandler; faulthandler.dump_traceback_later({LIMIT_SECONDS}, exit=True)\n"


class Job:
    """The processes of a job, by rank."""

    def __init__(self, processes, folder):
        self.processes = processes
        self._folder = folder

    def results(self):
        """Wait for all ranks, and return the JSON of each one's last line, None without a line."""
        codes = [process.wait(LIMIT_SECONDS + 60) for process in self.processes]
        assert not any(codes), "\n".join(
            f"rank {rank}: {code}\n{(self._folder / f'errors{rank}').read_text()}"
            for rank, code in enumerate(codes)
        )
        printed = [(self._folder / f"output{rank}").read_text() for rank in range(len(codes))]
        return [json.loads(text.splitlines()[-1]) if text else None for text in printed]

    def kill(self):
        """Kill all ranks."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def start_ranks(program, *arguments, ranks=2):
    """Start a program as so many ranks. The job is killed where the block ends."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        folder = Path(name)
        script = folder / "program.py"
        script.write_text(PRELUDE + program)
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))  # bound until the job ends, so no other job gets this port
        shared = os.environ | {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(probe.getsockname()[1]),
            "WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        job = Job([], folder)
        try:
            for rank in range(ranks):
                with (
                    (folder / f"output{rank}").open("w") as output,
                    (folder / f"errors{rank}").open("w") as errors,
                ):
                    job.processes.append(
                        subprocess.Popen(
                            [sys.executable, str(script), *map(str, arguments)],
                            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                            stdout=output,
                            stderr=errors,
                        )
                    )
            yield job
        finally:
            job.kill()


def run_ranks(program, *arguments, ranks=2):
    """Run a program as so many ranks; return the JSON of each one's last line."""
    with start_ranks(program, *arguments, ranks=ranks) as job:
        return job.results()
