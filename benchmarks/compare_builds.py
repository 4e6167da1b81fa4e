"""Compares the speed of two builds of the core, loaded side by side, which take turns.

    python benchmarks/compare_builds.py OLD NEW [-k WORD] [-n ROUNDS]

OLD and NEW are build folders of the `release` preset, in which the target `stage_benchmark` has
been built. Prints for each shape the nanoseconds of a use with both, and the ratios of neighbours,
medians with [lowest, highest]: machines that other programs use too change their speed within
seconds, and such a change falls on both of a pair. `best` is the ratio of the shortest times.
"""

import argparse
import ctypes
from functools import partial
from pathlib import Path

from pyecho.bench.row import spread
from pyecho.bench.sampling import interleaved


class Shape(ctypes.Structure):
    """The Shape of stage_benchmark.cpp."""

    _fields_ = [
        (name, ctypes.c_uint32)
        for name in (
            "leaves",
            "leaf_bytes",
            "batch_size",
            "shuffle_buffer",
            "factor",
            "threads",
            "producer",
        )
    ] + [("items", ctypes.c_uint64)]


SHAPES = {
    "one leaf of 64 B": Shape(1, 64, 256, 10_000, 4, 0, 0, 60_000),
    "one leaf of 8 B": Shape(1, 8, 256, 10_000, 4, 0, 0, 60_000),
    "16 leaves of 16 B": Shape(16, 16, 256, 10_000, 4, 0, 0, 50_000),
    "30 leaves of 8 B": Shape(30, 8, 256, 10_000, 4, 0, 0, 30_000),
    "8 leaves of 256 B": Shape(8, 256, 256, 10_000, 4, 0, 0, 30_000),
    "30 leaves of 64 B, uses of 32": Shape(30, 64, 128, 1000, 32, 0, 0, 5_000),
    "16 leaves of 8 B, producer": Shape(16, 8, 256, 10_000, 4, 0, 1, 200_000),
    "large pool, 64 B": Shape(1, 64, 1024, 1_000_000, 4, 0, 0, 1_200_000),
    "rows of 3 KB": Shape(1, 3072, 256, 10_000, 4, 0, 0, 40_000),
    "rows of 3 KB, 4 workers": Shape(1, 3072, 256, 10_000, 4, 4, 1, 40_000),
    "rows of 150 KB, worker": Shape(1, 150_528, 64, 500, 4, 1, 1, 2_000),
}


def load(build: str):
    library = ctypes.CDLL(str(Path(build) / "benchmarks/cpp/libstage_benchmark.so"))
    library.pyecho_stage_ns.restype = ctypes.c_double
    library.pyecho_stage_ns.argtypes = [ctypes.POINTER(Shape)]
    return library.pyecho_stage_ns


def ns_of(run, shape: Shape) -> float:
    ns: float = run(shape)
    if ns < 0:
        raise RuntimeError("a run failed: make its shape smaller, or look with a debugger")
    return ns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("-k", default="", help="only shapes with one of these words, parted by |")
    parser.add_argument("-n", type=int, default=11, help="rounds")
    options = parser.parse_args()
    builds = {"old": load(options.old), "new": load(options.new)}
    for name, shape in SHAPES.items():
        if not any(word in name for word in options.k.split("|")):
            continue
        contestants = {build: partial(ns_of, run, shape) for build, run in builds.items()}
        ns = interleaved(name, options.n, contestants)
        times = ", ".join(f"{build} {spread(sample, 'ns')}" for build, sample in ns.items())
        best = ns["old"].low / ns["new"].low
        ratio = spread(ns["old"] / ns["new"])
        print(f"{name}: {times}, old / new {ratio}, best {best:.2f}", flush=True)


if __name__ == "__main__":
    main()
