"""Put faults into copies of pyecho, one at a time, and tell which of them the tests find.

faults.toml has the faults: in which file what is replaced by what, the promise that this breaks,
and what must find it: files and folders of pytest, or a program of the C++ tests and a filter. The
installed package is copied for a fault in Python, and the sources are built in build/faults for one
in C++: the first time that takes minutes. Before that, everything chosen must pass without a fault.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build/faults"
TREE, BUILD = WORK / "tree", WORK / "build"
SECONDS = 600  # that tests of a fault may take
CONFIGURE = (
    "-G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DPYECHO_BUILD_PYTHON=ON "
    "-DPYECHO_BUILD_TESTS=ON"
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A change of one place in pyecho that breaks a promise."""

    name: str
    promise: str
    file: str
    old: str
    new: str
    found_by: list[str]

    @property
    def is_python(self) -> bool:
        """True if nothing has to be built."""
        return self.file.endswith(".py")

    @property
    def by_pytest(self) -> list[str]:
        """Files, folders and tests of pytest."""
        return [each for each in self.found_by if each.startswith("tests/")]

    @property
    def by_programs(self) -> list[tuple[str, str]]:
        """Programs of the C++ tests, each with a filter of GoogleTest."""
        others = (each.partition(" ") for each in self.found_by if not each.startswith("tests/"))
        return [(program, tests) for program, _, tests in others]

    def put_into(self, tree: Path) -> str:
        """Make the change in a tree; return the text of the file before."""
        file = tree / self.file
        text = file.read_text()
        if text.count(self.old) != 1:
            raise Missing(f"PATTERN MISSING: {self.file} has it {text.count(self.old)} times")
        file.write_text(text.replace(self.old, self.new))
        return text


class Missing(Exception):
    """The text to be replaced is not there, or more than once."""


def run(command: list[str], seconds: float | None = None, **variables: str) -> tuple[int, str]:
    """Return the exit status of a command, and its output; -1 if it does not end in time."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return -1, process.communicate()[0]
    return process.returncode, output


def found(
    tests: list[str],
    programs: list[tuple[str, str]],
    site: Path,
    seconds: float | None = SECONDS,
) -> str | None:
    """Return the first test that fails with the package in `site`; None if all pass."""
    for program, chosen in programs:
        command = [str(BUILD / "tests/cpp" / program), f"--gtest_filter={chosen}"]
        status, output = run([*command, "--gtest_fail_fast"], seconds)
        if " 0 tests from" in output:
            sys.exit(f"{program} has no test {chosen}")
        if status:
            return _line(output, "[  FAILED  ] ", "(") or f"{program} {chosen} {_how(status)}"
    if tests:
        options = ["-x", "--quiet", "--tb=no", "--color=no", "-p", "no:cacheprovider"]
        options += ["--hypothesis-profile", "faults"]
        command = [sys.executable, "-P", "-m", "pytest", *options, *tests]
        status, output = run(command, seconds, PYTHONPATH=str(site))
        if status in (4, 5):  # wrong arguments, no test
            sys.exit(f"{output}\n{' '.join(tests)} cannot be run")
        if status:
            line = _line(output, "FAILED ", " - ") or _line(output, "ERROR ", " - ")
            return line or f"{' '.join(tests)} {_how(status)}"
    return None


def _line(output: str, begin: str, end: str) -> str | None:
    """Return what follows `begin` in the first line that begins so."""
    lines = [each for each in output.splitlines() if each.startswith(begin)]
    return lines[0].removeprefix(begin).partition(end)[0].strip() if lines else None


def _how(status: int) -> str:
    return "does not end" if status == -1 else f"ends with {status}"


# ---------------------------------------------------------------- copies


def copied_package(name: str) -> Path:
    """Return a folder with a copy of the installed package."""
    spec = find_spec("pyecho")
    assert spec is not None
    assert spec.origin is not None
    site = WORK / name
    shutil.rmtree(site, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(spec.origin).parent, site / "pyecho", ignore=ignored)
    return site


def copy_tree() -> None:
    """Copy what git knows, and is not the same there already: builds go on with the rest."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in listed.rstrip("\0").split("\0"):
        file, copy = ROOT / name, TREE / name
        if file.is_file() and not (copy.exists() and copy.read_bytes() == file.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def build(faults: list[Fault], site: Path) -> str:
    """Build what these faults need, and put the extension into `site`; return what has failed."""
    targets = {program for fault in faults for program, _ in fault.by_programs}
    if any(fault.by_pytest for fault in faults):
        targets.add("_core")
    status, output = run(["cmake", "--build", str(BUILD), "--target", *sorted(targets)])
    if status:
        return output
    for module in (BUILD / "csrc/bindings").glob("_core*.so"):
        shutil.copy2(module, site / "pyecho")
    return ""


# ---------------------------------------------------------------- all of them


def checked(faults: list[Fault], site: Path) -> str | None:
    """Return the first test that fails without a fault."""
    python = [fault for fault in faults if fault.is_python]
    native = [fault for fault in faults if not fault.is_python]
    if native:
        copy_tree()
        pybind = [sys.executable, "-P", "-m", "pybind11", "--cmakedir"]
        options = [
            f"-DPython_EXECUTABLE={sys.executable}",
            f"-Dpybind11_DIR={subprocess.check_output(pybind, text=True).strip()}",
        ]
        command = ["cmake", "-S", str(TREE), "-B", str(BUILD), *CONFIGURE.split(), *options]
        status, output = run(command)
        if status or (output := build(native, site)):
            sys.exit(f"{output}\nthe sources cannot be built")
    tests = {each for fault in (*python, *native) for each in fault.by_pytest}
    programs = {each for fault in native for each in fault.by_programs}
    return found(sorted(tests), sorted(programs), site, seconds=None)


def tried(fault: Fault, sites: queue.SimpleQueue[str]) -> str:
    """Return what finds a fault in Python, or that nothing does."""
    name = sites.get()
    try:
        site = copied_package(name)
        fault.put_into(site)
        return _told(found(fault.by_pytest, [], site))
    except Missing as missing:
        return str(missing)
    finally:
        sites.put(name)


def tried_in_tree(fault: Fault, site: Path) -> str:
    """Return what finds a fault in C++, or that nothing does."""
    file = TREE / fault.file
    try:
        text = fault.put_into(TREE)
    except Missing as missing:
        return str(missing)
    try:
        if output := build([fault], site):
            return f"DOES NOT BUILD: {output.strip().splitlines()[-1]}"
        return _told(found(fault.by_pytest, fault.by_programs, site))
    finally:
        file.write_text(text)


def _told(test: str | None) -> str:
    return "NOT FOUND" if test is None else f"found: {test}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; all of them if empty")
    parser.add_argument("--python", action="store_true", help="only faults in Python")
    parser.add_argument("--jobs", type=int, default=2, help="faults in Python tried at a time")
    arguments = parser.parse_args()
    listed = tomllib.loads((ROOT / "tests/faults.toml").read_text())
    if unknown := set(arguments.names) - listed.keys():
        parser.error(f"no fault is called {', '.join(sorted(unknown))}")
    faults = [Fault(name=name, **listed[name]) for name in arguments.names or listed]
    faults = [fault for fault in faults if fault.is_python or not arguments.python]
    site = copied_package("native")
    print("Without a fault ...", flush=True)
    if broken := checked(faults, site):
        sys.exit(f"without any fault {broken} fails")
    sites: queue.SimpleQueue[str] = queue.SimpleQueue()
    for job in range(arguments.jobs):
        sites.put(f"python-{job}")
    results: dict[str, str] = {}
    builds = ThreadPoolExecutor(1)
    with ThreadPoolExecutor(arguments.jobs) as others, builds:
        running = {
            (
                others.submit(tried, fault, sites)
                if fault.is_python
                else builds.submit(tried_in_tree, fault, site)
            ): fault
            for fault in faults
        }
        for done in as_completed(running):
            name = running[done].name
            results[name] = done.result()
            print(f"{len(results)} of {len(faults)}: {name}: {results[name]}", flush=True)
    width = max(map(len, results))
    print("\n" + "\n".join(f"{fault.name:{width}}  {results[fault.name]}" for fault in faults))
    lost = [name for name, result in results.items() if not result.startswith("found")]
    print(f"{len(faults) - len(lost)} of {len(faults)} faults were found")
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
