"""Send thousands of interrupts to every pipeline, and print a line about each.

    python tests/interrupts/storms.py --interrupts 3000 [--only WORD] [--seed N]

It ends with 1 if a pipeline lost or doubled anything.
"""

import argparse
import contextlib
import faulthandler
import io
import sys
import time
import warnings
from pathlib import Path

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "support")]

from interrupts import Storm
from pipelines import PIPELINES, check, name_of

HANGS_AFTER_SECONDS = 600


def rage(number: int, interrupts: int, seed: int) -> tuple[int, int, dict[str, int], float]:
    """Return the interrupts, the runs, how often each fault was seen, and the seconds it took."""
    faults: dict[str, int] = {}
    began, runs = time.perf_counter(), 0
    with Storm(seed + number) as storm, contextlib.redirect_stderr(io.StringIO()):
        while storm.interrupts < interrupts:
            try:
                check(number, storm.strikes, seed=seed + runs)
            except Exception as error:
                text = f"{type(error).__name__}: {error}".splitlines()[0]
                faults[text] = faults.get(text, 0) + 1
                if sum(faults.values()) > interrupts:  # also without an interrupt
                    break
            runs += 1
    return storm.interrupts, runs, faults, time.perf_counter() - began


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interrupts", type=int, default=3000, help="of each pipeline")
    parser.add_argument("--only", default="", help="pipelines with this in their name")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong = total = 0
    print(f"{'interrupts':>10} {'runs':>6} {'wrong':>6} {'seconds':>8}  pipeline")
    for number, pipeline in enumerate(PIPELINES):
        if given.only not in name_of(pipeline):
            continue
        faulthandler.dump_traceback_later(HANGS_AFTER_SECONDS, exit=True)
        interrupts, runs, faults, seconds = rage(number, given.interrupts, given.seed)
        failed = sum(faults.values())
        wrong, total = wrong + bool(failed), total + interrupts
        print(f"{interrupts:>10} {runs:>6} {failed:>6} {seconds:>8.1f}  {name_of(pipeline)}")
        for text, times in sorted(faults.items(), key=lambda each: -each[1])[:2]:
            print(f"{'':>34}{times} x {text}")
        sys.stdout.flush()
    print(f"{total} interrupts, {wrong} of {len(PIPELINES)} pipelines wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
