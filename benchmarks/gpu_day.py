"""All that only a GPU can show, in one command: `make gpu-day OUT=folder`.

Needs a Python with PyTorch, NumPy, pytest, hypothesis and rich, and no registry. Without --wheel
also scikit-build-core, pybind11, CMake and a compiler: the wheel is built then.

A call takes nine minutes at most and ends with 3 if parts are left: call again. A part that has its
result for the same sources is left out; a part that was cut begins again. Files of the folder:

    gpu-day-<device>.md, .json   facts, the result of each part, tables: for benchmarks/results
    gpu-day.log                  output of all parts

Ends with 1 if a part has failed. compute-sanitizer looks at PyTorch's kernels and at copies, and at
races between streams; pyecho has no kernels, so none shares memory that racecheck could watch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LEFT = 3
SECONDS = 530
"""Of a call."""
SAID = re.compile(r"passed|failed|wrong|ERROR SUMMARY|Error|skipped")
NO_CACHE = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
ORDERED = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}
FACTS = """
import json, os, sys, torch
from pyecho.bench.report import facts_of
from pyecho.tools.info import collect_cuda
facts = {"device": torch.cuda.get_device_name(), "devices": torch.cuda.device_count(),
         "torch": torch.__version__, "CUDA of torch": torch.version.cuda}
print(json.dumps(facts_of() | collect_cuda() | facts))
"""


class Part(NamedTuple):
    """A part of the day."""

    seconds: int
    command: list[str]
    environment: dict[str, str] | None = None
    needs: str = ""


def pytest(*paths: str) -> list[str]:
    """Return a command that runs tests; warnings of other versions are no errors."""
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-o", "filterwarnings="]
    return [sys.executable, "-P", "-m", "pytest", *options, *paths]


def parts_of(options: argparse.Namespace) -> dict[str, Part]:
    """Return all parts, in their order."""
    py, scale = [sys.executable], ["--quick"] * options.quick
    site, results = str(options.output / "site"), options.output / "parts"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--upgrade", "--no-build-isolation", "--target", site, options.wheel or str(ROOT)]
    schedules = [*py, "tests/emulated/schedules.py", "0"]
    sanitizer = ["compute-sanitizer", "--error-exitcode", "9", "--tool", "memcheck"]
    races = [*sanitizer, "--track-stream-ordered-races", "all"]
    gpu = [f"tests/gpu/test_{name}.py" for name in ("link", "rows", "streams", "lifetimes")]
    gpu = gpu[:1] if options.quick else gpu
    host = [f"tests/device/test_{name}.py" for name in ("augment", "same_output", "sources")]
    tests = {
        "wheel": Part(400, pip),
        "facts": Part(120, [*py, "-P", "-c", FACTS]),
        "tests": Part(500, pytest(*(gpu if options.quick else ["tests/gpu"]))),
        "tests of the host": Part(500, pytest(*host[options.quick :])),
        "schedules": Part(400, [*schedules, "4" if options.quick else "400"]),
        "captures": Part(400, [*schedules, "2" if options.quick else "100", "capture"]),
        "memcheck": Part(500, sanitizer + pytest(*gpu[:2]), NO_CACHE, sanitizer[0]),
        "races": Part(500, races + pytest(*gpu[2:] or gpu), ORDERED, sanitizer[0]),
    }
    benchmarks = {
        name: Part(500, [*py, "benchmarks/gpu.py", name, *scale, "--output", str(results / name)])
        for name in ("link", "overlap", "priorities", "emission", "training")
    }
    gil = [*py, "benchmarks/gil.py", *scale, "--output", str(results / "gil")]
    return tests | benchmarks | {"gil": Part(500, gil)}


def sources() -> str:
    """Return a name of what is tested: a hash of the sources, since there may be no git."""
    files = [ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"]
    for folder in ("cmake", "csrc", "include", "pyecho", "tests", "benchmarks"):
        files += (ROOT / folder).rglob("*.[pch]*")
    found = hashlib.sha256()
    for path in sorted(path for path in files if path.suffix != ".pyc" and path.is_file()):
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def run(part: Part, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a part; its output goes to the log."""
    if part.needs and shutil.which(part.needs) is None:
        return {"result": "left out", "seconds": 0, "said": f"there is no {part.needs}"}
    environment = os.environ | (part.environment or {})
    environment |= {"PYTHONPATH": str(folder / "site"), "PYTHONUNBUFFERED": "1"}
    began, log = time.monotonic(), folder / "gpu-day.log"
    with log.open("ab") as file:
        file.write(f"\n===== {' '.join(part.command)[:2000]}\n".encode())
        file.flush()
        begin = file.tell()
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=environment, stdout=file, stderr=file, process_group=0
        )
        try:
            status = str(process.wait(seconds))
        except subprocess.TimeoutExpired:
            status = "took too long"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)  # the part, and all that it has started
                process.wait()
    output = log.read_bytes()[begin:].decode(errors="replace").splitlines()
    said = [line for line in output if SAID.search(line)][-1:] or output[-1:]
    return {
        "result": "passed" if status == "0" else f"failed ({status})",
        "seconds": round(time.monotonic() - began),
        "said": "".join(said).strip("= "),
    }


def tables(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the name, the tables and the JSON of each benchmark that has them."""
    for path in sorted((folder / "parts").glob("*/*.md")):
        text = path.read_text().partition("\n## ")
        yield path.parent.name, text[1] + text[2], json.loads(path.with_suffix(".json").read_text())


def write(folder: Path, day: dict[str, Any]) -> Path:
    """Write the summary as it stands."""
    facts = day["facts"]
    slug = re.sub(r"[^a-z0-9]+", "-", facts.get("device", "unknown").lower())
    lines = [f"# A day with {facts.get('device', 'a GPU')}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", "| Part | Result | Seconds | Last words |", "|---|---|---|---|"]
    for name, found in day["parts"].items():
        said = found["said"][:150].replace("|", "/")
        lines.append(f"| {name} | {found['result']} | {found['seconds']} | {said} |")
    found = list(tables(folder))
    path = folder / f"gpu-day-{slug}.md"
    path.write_text("\n".join(lines) + "\n" + "".join(text for _, text, _ in found))
    whole = day | {"benchmarks": {name: results for name, _, results in found}}
    path.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n")
    return path


def facts_in(folder: Path) -> dict[str, Any]:
    """Return what the part of the facts has printed last, and what the driver says."""
    lines = (folder / "gpu-day.log").read_text(errors="replace").splitlines()
    facts = json.loads([line for line in lines if line.startswith('{"')][-1])
    facts["commit"] = facts["commit"] or os.environ.get("COMMIT")  # without git
    if shutil.which("nvidia-smi"):
        asked = "driver_version,pcie.link.gen.max,pcie.link.width.max,clocks.sm,temperature.gpu"
        command = ["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        facts[asked] = done.stdout.strip()
    return facts


def parsed_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="folder of all results")
    parser.add_argument("--wheel", default="", help="of pyecho for this Python; else it is built")
    parser.add_argument("--quick", action="store_true", help="shows that everything works")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of this call (%(default)s)")
    parser.add_argument("only", nargs="*", metavar="part", help="only these parts")
    options = parser.parse_args()
    options.output = options.output.resolve()
    options.wheel = options.wheel and str(Path(options.wheel).resolve())
    return options


def main(options: argparse.Namespace) -> int:
    """Run the parts that have no result yet, as long as there is time."""
    ends = time.monotonic() + options.seconds
    folder, parts = options.output, parts_of(options)
    folder.mkdir(parents=True, exist_ok=True)
    state = folder / "state.json"
    day: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {}
    if day.get("of") != (now := f"{sources()}{' --quick' * options.quick}"):
        day = {"of": now, "facts": {}, "parts": {}}
    left = [name for name in options.only or parts if name not in day["parts"]]
    for name in left:
        part, rest = parts[name], ends - time.monotonic()
        if rest < min(part.seconds / 2, options.seconds - 10):
            print(f"{name}: has to wait for another call")
            return LEFT
        print(f"{name} ...", end=" ", flush=True)
        found = run(part, folder, min(part.seconds, rest))
        if "too long" in found["result"] and rest < part.seconds:
            print("cut; begins again with the next call")
            return LEFT
        print(f"{found['result']}, {found['seconds']} s: {found['said'][:100]}", flush=True)
        day["parts"][name] = found
        if name == "facts" and found["result"] == "passed":
            day["facts"] = facts_in(folder)
        state.write_text(json.dumps(day))
        path = write(folder, day)
        if name == "wheel" and found["result"] != "passed":
            return 1
    if left:
        print(path)
    return int(any("failed" in found["result"] for found in day["parts"].values()))


if __name__ == "__main__":
    sys.exit(main(parsed_arguments()))
