"""Builds the emulated CUDA into the environment of the Python that runs this.

PyTorch's CUDA build must be there; the folder of NVIDIA's headers is the only argument. Makes
libcuda and libcudart, and a stub of every other library of NVIDIA's that PyTorch links, whose
functions all answer an error. Installs operators.py and control.py as the package cuda_emulator.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
PACKAGES = Path(sysconfig.get_paths()["purelib"])
TARGET = PACKAGES / "nvidia" / "cu13" / "lib"  # PyTorch's libraries look there
ENGINE = ["streams.cpp", "memory.cpp", "capture.cpp", "control.cpp", "driver.cpp"]
DRIVER, RUNTIME = "libcuda.so.1", "libcudart.so.13"
OF_NVIDIA = re.compile(r"(lib(cu|nccl|nvshmem|nvrtc|nvJitLink|nvtx)[A-Za-z_]*)\.so\.\d+")
FUNCTION_OF_NVIDIA = re.compile(r"(cu|nccl|nvshmem|nvrtc)[A-Za-z0-9_]+")
COMPILE = ["g++", "-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra"]


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Needed(NamedTuple):
    """Needs of libraries in others."""

    sonames: set[str]
    versions: dict[str, str]
    """The version that the symbols of a library have, if they have one."""
    functions: dict[str, set[str]]
    """By version; "" for those without."""


def needed_by(libraries: list[Path]) -> Needed:
    needed = Needed(set(), {}, defaultdict(set))
    for library in libraries:
        needed.sonames.update(re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-dW", library)))
        entries = re.findall(r"File: (\S+) .*\n.*Name: (\S+)", output("readelf", "-VW", library))
        needed.versions.update(entries)
        listing = output("nm", "-D", "--undefined-only", "--with-symbol-versions", library)
        for line in listing.splitlines():
            name, _, version = line.split()[-1].partition("@")
            needed.functions[version].add(name)
    return needed


def link(soname: str, version: str, functions: set[str], *sources: str | Path) -> None:
    """Build a library of `sources`; those of `functions` that they lack answer an error."""
    with tempfile.TemporaryDirectory() as folder:
        stubs, script = Path(folder, "stubs.cpp"), Path(folder, "versions")
        stub = 'extern "C" __attribute__((weak)) int {}() {{ return 801; }}\n'.format
        stubs.write_text("".join(map(stub, sorted(functions))))
        script.write_text(f"{version} {{ global: *; }};")
        more = [f"-Wl,-soname,{soname}", *[f"-Wl,--version-script={script}"] * bool(version)]
        subprocess.run([*COMPILE, *more, "-o", TARGET / soname, stubs, *sources], check=True)


def build(headers: Path) -> None:
    torch = importlib.util.find_spec("torch")
    needed = needed_by(sorted((Path(torch.origin).parent / "lib").glob("*.so")))
    functions = {name for name in needed.functions[""] if FUNCTION_OF_NVIDIA.fullmatch(name)}
    of_driver = {name for name in functions if re.match(r"cu[A-Z](?!ile)", name)}
    include = f"-I{headers}"
    link(DRIVER, "", of_driver, include, *(HERE / name for name in ENGINE))
    runtime = [HERE / "runtime.cpp", HERE / "kernels.cpp", TARGET / DRIVER, "-Wl,-rpath,$ORIGIN"]
    link(RUNTIME, RUNTIME, needed.functions[RUNTIME], include, *runtime)
    for soname in filter(OF_NVIDIA.fullmatch, needed.sonames - {DRIVER, RUNTIME}):
        version = needed.versions.get(soname, "")
        link(soname, version, needed.functions[version] if version else functions - of_driver)


def install() -> None:
    """Install the package; its entry point has PyTorch import it."""
    package = PACKAGES / "cuda_emulator"
    package.mkdir(exist_ok=True)
    for name in ("operators.py", "control.py"):
        shutil.copy(HERE / name, package)
    metadata = PACKAGES / "cuda_emulator-1.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: cuda_emulator\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[torch.backends]\ncuda_emulator = cuda_emulator.operators:register\n"
    )


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    build(Path(sys.argv[1]))
    install()
