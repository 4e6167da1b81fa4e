"""Tests pyecho with other libraries, each in an environment of its own.

    python tools/ecosystem.py WHEEL [NAME ...]     # make ecosystem ECOSYSTEM="grain keras"

For each requirements/NAME.txt below tests/ecosystem and tests/frameworks, makes the environment
.venv-ecosystem/NAME with these packages and the wheel, and runs test_NAME*.py beside the
folder there, or the script for NAME in examples/libraries, or what is called NAME in
test_libraries.py. A table at the end names the versions; the status is 1 if any of them failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("ecosystem", "frameworks")
TOOLS = ("pytest>=8", "pytest-timeout")
MOST_SECONDS = 1800
"""For the tests of one library, and for its installation."""


@dataclass
class Outcome:
    """A row of the table."""

    name: str
    result: str
    seconds: float
    versions: str = ""

    @property
    def passed(self) -> bool:
        """True if tests ran, and none failed."""
        return self.result.endswith("passed")


def main() -> int:
    """Run the tests of all libraries, or of those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    found = {
        path.stem: path
        for folder in FOLDERS
        for path in sorted((ROOT / "tests" / folder / "requirements").glob("*.txt"))
    }
    unknown = [name for name in arguments.names if name not in found]
    if unknown:
        parser.error(f"no requirements/{unknown[0]}.txt; there are {', '.join(found)}")
    outcomes = [
        tested(name, found[name], arguments.wheel.resolve()) for name in arguments.names or found
    ]
    print(table(outcomes))
    return 0 if all(each.passed for each in outcomes) else 1


def tested(name: str, requirements: Path, wheel: Path) -> Outcome:
    """Install and test one library."""
    print(f"== {name}", flush=True)
    began, folder = time.monotonic(), ROOT / ".venv-ecosystem" / name
    try:
        install(folder, requirements, wheel)
        report = folder / "report.xml"
        report.unlink(missing_ok=True)
        tests = [*requirements.parents[1].glob(f"test_{name}*.py")]
        if not tests:
            is_script = (ROOT / "examples" / "libraries" / f"with_{name}.py").exists()
            file, chosen = ("scripts", f"[{name}]") if is_script else ("libraries", name)
            tests = [requirements.parents[1] / f"test_{file}.py", "-k", chosen]
        command = [
            folder / "bin" / "pytest",
            "--quiet",
            "--timeout=600",
            f"--junitxml={report}",
            *tests,
        ]
        subprocess.run(command, cwd=ROOT, timeout=MOST_SECONDS, check=False)
        result = counted(report)
    except (subprocess.SubprocessError, OSError) as error:
        print(error, flush=True)
        result = "not installed" if "pip" in str(error) else "no result"
    return Outcome(name, result, time.monotonic() - began, versions(folder, requirements))


def install(folder: Path, requirements: Path, wheel: Path) -> None:
    """Make the environment unless it has what the requirements name, and put the wheel into it."""
    stamp, wanted = folder / "installed.txt", requirements.read_text()
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet"]
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(folder, with_pip=True, clear=True)
        constraints = ("--constraint", ROOT / "constraints.txt")
        run([*pip, *constraints, "-r", requirements, *TOOLS, wheel])
        stamp.write_text(wanted)
    run([*pip, "--no-deps", "--force-reinstall", wheel])


def run(command: list[object]) -> None:
    """Run a command, which must succeed."""
    subprocess.run(list(map(str, command)), cwd=ROOT, timeout=MOST_SECONDS, check=True)


def counted(report: Path) -> str:
    """Return how many tests passed, or what else became of them."""
    if not report.exists():
        return "no result"
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    tests, failed, skipped = (
        sum(int(suite.get(kind, 0)) for kind in kinds)
        for kinds in (("tests",), ("failures", "errors"), ("skipped",))
    )
    if failed:
        return f"{failed} of {tests} failed"
    return f"{tests - skipped} passed" if tests > skipped else "nothing ran"


def versions(folder: Path, requirements: Path) -> str:
    """Return the installed versions of the required packages."""
    names = re.findall(r"^[\w.-]+", requirements.read_text(), re.MULTILINE)
    code = (
        "import sys; from importlib.metadata import version\n"
        "print(', '.join(f'{name} {version(name)}' for name in sys.argv[1:]))"
    )
    try:
        command = [str(folder / "bin" / "python"), "-c", code, *names]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (subprocess.SubprocessError, OSError):
        return ""


def table(outcomes: list[Outcome]) -> str:
    """Return the outcomes as lines of text."""
    wide = max(len(each.name) for each in outcomes)
    return "\n".join(
        [
            "",
            "",
            *(
                f"{each.name:{wide}}  {each.result:18} {each.seconds:5.0f} s  {each.versions}"
                for each in outcomes
            ),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
