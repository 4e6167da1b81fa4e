"""A gate for the night: fails if echoing costs twice what it should.

Runs `pyecho bench` twice, with the options that are given. Each median ratio to a limit must be the
same in both halves within a factor of 2, else the machine is too noisy to tell, and no ratio that
has a target may miss it by more than a factor of 2 in both. Tries three times, since other programs
disturb it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FACTOR, TRIES = 2.0, 3


def verdicts(halves: list[list[dict[str, Any]]]) -> list[str]:
    """Return what is wrong with the rows of both halves."""
    found = []
    for rows in zip(*halves, strict=True):
        if rows[0]["ratio"] is None:
            continue
        name = f"{rows[0]['what']}, against {rows[0]['limit_name']}"
        low, high = sorted(row["ratio"]["median"] for row in rows)
        if high > FACTOR * low:
            found.append(f"{name}: {low:.3g} and {high:.3g} differ too much")
        sign, _, target = rows[0]["target"].partition(" ")
        if not target.replace(".", "").isdecimal():  # none, or one in nanoseconds
            continue
        missed = low / float(target) if sign == "<=" else float(target) / high
        if missed > FACTOR:
            found.append(f"{name}: {low:.3g} and {high:.3g}, where {sign} {target} is the target")
    return found


def attempt(options: list[str]) -> list[str]:
    """Run both halves, and return what is wrong."""
    command = [Path(sys.executable).with_name("pyecho"), "bench", "--json", *options]
    outputs = [subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout for _ in range(2)]
    return verdicts([json.loads(output)["rows"] for output in outputs])


def main() -> int:
    """Try until nothing is wrong; return 1 if something always was."""
    for _ in range(TRIES):
        wrong = attempt(sys.argv[1:])
        if not wrong:
            print("Both halves of pyecho bench agree, and no target is missed twofold")
            return 0
        print(*wrong, sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
