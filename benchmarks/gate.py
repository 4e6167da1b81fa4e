"""A gate for the night: fails if echoing costs twice what it should.

Runs `pyecho bench` twice. Each median ratio to a limit must be the same in both halves within a
factor of 2, else the machine is too noisy to tell, and no ratio that has a target may miss it by
more than a factor of 2 in both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

FACTOR = 2.0


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


if __name__ == "__main__":
    command = [Path(sys.executable).with_name("pyecho"), "bench", "--json", *sys.argv[1:]]
    outputs = [subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout for _ in range(2)]
    wrong = verdicts([json.loads(output)["rows"] for output in outputs])
    print(
        *wrong or ["Both halves of pyecho bench agree, and no target is missed twofold"], sep="\n"
    )
    sys.exit(bool(wrong))
