"""Random schedules of a loader: `schedules.py FIRST COUNT [capture ...]` runs so many seeds.

Each schedule takes batches in a random way, on random streams, hoards, drops or copies them, breaks
off, captures a graph, forks, or has a function of CUDA fail, and compares what the kernels saw with
a loader without a device; of an adaptive factor, how often they saw each item. Afterwards nothing
may be left: no thread, no memory of a device, no pinned memory. Prints each seed that went wrong,
and counts. A real device does as well; there no function fails.
"""

import contextlib
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import traceback
import warnings
from collections import Counter

import torch

import pyecho.torch
from pyecho.torch import Device

try:
    from cuda_emulator import control
except ImportError:
    control = None
DEVICE = torch.device("cuda", 0)
WHAT = ["nothing", *["failure"] * 2 * bool(control), "capture", "fork", "leave"]
ABORTING = {
    "cuDevicePrimaryCtxGetState",
    "cudaEventCreateWithFlags",
    "cudaEventDestroy",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaEventRecordWithFlags",
    "cudaGetDevice",
    "cudaSetDevice",
    "cudaStreamGetCaptureInfo",
    "cudaStreamIsCapturing",
}
"""If these fail, PyTorch throws in destructors or loses count of events, and the process ends."""
MOST_USES = 4
TELLS_PINNED = torch.__version__ >= "2.13"  # before, the count of pinned bytes only grew
JOIN_SECONDS = 60
HANG_SECONDS = 180


def shifted(batch, generator):
    return batch + generator.initial_seed() % 2


WAYS = {
    "batches": {},
    "host": {"batch_size": 4, "shuffle_buffer": 6},
    "device": {"batch_size": 4, "shuffle_buffer": 6, "device": Device(DEVICE, echo=True)},
    "converted": {"batch_size": 4, "device": Device(DEVICE, echo=True, dtype=torch.float64)},
    "converted batches": {"device": Device(DEVICE, dtype=torch.float64)},
    "augmented batches": {"device": Device(DEVICE, augment=shifted)},
    "augmented": {"batch_size": 4, "shuffle_buffer": 6, "device": Device(DEVICE, augment=shifted)},
    "host's augment": {"augment": lambda batch, rng: batch + 0, "augment_workers": 2},
    "own copies": {"batch_size": 4, "pin_memory": True, "device": None},
    "batches made there": {},
}


class Schedule:
    """One schedule; all that is random in it comes from its seed."""

    def __init__(self, seed, way=None, items=None):
        self.random = random.Random(seed)
        self.way = way or self.random.choice(list(WAYS))
        self.width = self.random.choice([5, 800, 20_000])
        self.items = items or self.random.randrange(1, 13)
        self.factor = self.random.choice([1, 2, 3, 2.5])
        self.is_adaptive = seed % 5 == 4
        self.streams = [torch.cuda.Stream(DEVICE) for _ in range(2)]
        self.streams.append(torch.cuda.default_stream(DEVICE))
        self.what = self.random.choice(WHAT)
        self.hoard = self.random.random() < 0.3
        self.hoarded = []
        prefetch = self.random.choice([1, 2, 5])
        arguments = {"seed": seed, "prefetch": prefetch, "device": DEVICE, **WAYS[self.way]}
        factor = pyecho.Adaptive(MOST_USES) if self.is_adaptive else self.factor
        self.loader = pyecho.torch.EchoLoader(self.Source(self), factor, **arguments)
        for name in ("device", "memory"):
            arguments.pop(name, None)
        source = [torch.full((self.width,), float(number)) for number in range(self.items)]
        self.on_host = pyecho.torch.EchoLoader(source, self.factor, **arguments)

    class Source:
        def __init__(self, schedule):
            self.items = schedule.items
            self.width = schedule.width
            self.there = schedule.way == "batches made there"

        def __len__(self):
            return self.items

        def __iter__(self):
            for number in range(self.items):
                yield torch.full(
                    (self.width,), float(number), device=DEVICE if self.there else None
                )

    # ------------------------------------------------------------ one epoch

    def expected(self, epoch):
        self.on_host.set_epoch(epoch)
        return [batch.reshape(-1, self.width)[:, 0].tolist() for batch in self.on_host]

    def epoch(self, number, *, until=None):
        """Take an epoch, or so many batches of it; check what kernels saw of what was taken."""
        self.loader.set_epoch(number)
        seen = []
        taken = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for taken, batch in enumerate(self.batches(), 1):
                    seen.append(self.used(batch))
                    del batch
                    if taken == until:
                        break
        finally:
            self.check(seen, number, whole=until is None and sys.exc_info()[0] is None)

    def batches(self):
        """Take each batch with a stream of its own, as the caller's current one."""
        iterator = iter(self.loader)
        while True:
            stream = self.random.choice(self.streams)
            with torch.cuda.stream(stream):
                batch = next(iterator, None)
                if batch is None:
                    return
                yield batch

    def used(self, batch):
        """Let a kernel read the batch, late; drop, hoard or change it."""
        if self.way == "own copies":
            batch = batch.to(DEVICE, non_blocking=True)
        if self.random.random() < 0.5:
            torch.cuda._sleep(self.random.randrange(300_000))
        seen = batch.reshape(-1, self.width).clone()
        if self.hoard:
            self.hoarded.append((batch, seen))
        elif self.way not in ("batches", "converted batches", "batches made there"):
            batch.zero_()
        if self.random.random() < 0.1:
            gc.collect()
        return seen

    def check(self, seen, epoch, *, whole):
        failing = sys.exc_info()[0] is not None
        reset()
        torch.cuda.synchronize(DEVICE)
        expected = [] if self.is_adaptive else self.expected(epoch)
        if not self.is_adaptive:
            enough = len(seen) == len(expected) if whole else len(seen) <= len(expected)
            assert enough, (len(seen), len(expected))
        rows = torch.cat(seen).cpu() if seen else torch.empty(0, 1)
        assert (rows == rows[:, :1]).all(), "a batch is torn"
        found_in_all = rows[:, 0].tolist()
        if self.is_adaptive and whole and "augmented" not in self.way:
            uses = Counter(found_in_all)
            assert set(uses) == set(range(self.items)), uses
            assert max(uses.values()) <= MOST_USES, uses
        for values in expected[: len(seen)]:
            found = found_in_all[: len(values)]
            del found_in_all[: len(values)]
            if "augmented" in self.way:
                added = {ours - theirs for ours, theirs in zip(found, values, strict=True)}
                assert len(added) == 1, (found, values)
                assert added <= {0.0, 1.0}, (found, values)
            elif not (failing and self.way == "batches made there"):  # the source has ended early
                assert found == values, (found, values, failing)
        for batch, seen_before in self.hoarded:
            assert torch.equal(batch.reshape(-1, self.width).cpu(), seen_before.cpu())
        self.hoarded.clear()

    # ------------------------------------------------------------ what happens

    def run(self):
        getattr(self, self.what)()
        self.epoch(5)
        self.loader.close()

    def nothing(self):
        self.epoch(0)

    def leave(self):
        for number in range(3):
            self.epoch(number, until=self.random.randrange(1, 5))

    def failure(self):
        """Have a call of a function fail once, of those that an epoch calls."""
        before = control.calls()
        self.epoch(0)
        called = control.calls() - before
        names = sorted(name for name in called if name not in ABORTING)
        name = self.random.choice(names)
        self.failing(name, self.random.randrange(1, called[name] + 2))

    def failing(self, name, nth):
        """Take an epoch in which the nth call of a function fails."""
        control.fail(name, nth, self.random.choice([control.OUT_OF_MEMORY, control.LAUNCH_FAILED]))
        with contextlib.suppress(RuntimeError):  # those of PyTorch, and CudaError
            self.epoch(1)
        control.reset()
        with contextlib.suppress(RuntimeError):  # what the failed call has left
            torch.cuda.synchronize(DEVICE)
        FAILED[name] += 1

    def capture(self):
        """Capture a graph in the middle of an epoch, while the loader's threads go on."""
        stream = self.streams[0]
        static = torch.ones(100, device=DEVICE)
        iterator = iter(self.loader)
        kept = next(iterator, None)
        torch.cuda.synchronize(DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            doubled = static * 2
            if self.random.random() < 0.5:
                del kept
            time.sleep(self.random.random() * 5e-3)
            doubled = doubled + 1
        with torch.cuda.stream(stream):
            graph.replay()
            assert doubled.unique().tolist() == [3.0]
        del iterator

    def fork(self):
        """Fork with uploads under way; the child may use what is left of the loader, and fails."""
        iterator = iter(self.loader)
        next(iterator, None)
        is_over = self.is_adaptive or len(self.expected(0)) <= 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads and fork
            child = os.fork()
        if child == 0:
            code = 1
            try:
                next(iterator)
            except pyecho.EchoError:
                code = 0
            except StopIteration:
                code = not is_over
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0, "the child did not get an error"


FAILED = Counter()


def reset():
    """Have no function fail any more."""
    if control is not None:
        control.reset()


def left():
    """Remains of a loader that is gone."""
    gc.collect()
    deadline = time.monotonic() + JOIN_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith("pyecho"):
            thread.join(deadline - time.monotonic())
    gc.collect()
    torch.cuda.synchronize(DEVICE)
    torch.empty(1, pin_memory=True)  # has the allocator look at what copies have read
    pinned = torch.cuda.host_memory_stats()["active_bytes.current"]
    return {
        "threads": sum(thread.name.startswith("pyecho") for thread in threading.enumerate()),
        "device bytes": torch.cuda.memory_allocated(DEVICE),
        "pinned bytes": pinned if TELLS_PINNED else 0,
    }


def main(first, count):
    torch.zeros(1, device=DEVICE).add_(1) + 1  # has PyTorch import what it imports late
    before = left()
    wrong = 0
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        schedule = Schedule(seed)
        about = f"seed {seed}: {schedule.way}, {schedule.what}"
        try:
            schedule.run()
        except BaseException:
            wrong += 1
            print(f"{about}\n{traceback.format_exc()}", flush=True)
        reset()
        del schedule
        after = left()
        if any(after[name] > before[name] for name in before):
            wrong += 1
            print(f"{about}: left {after}, before {before}", flush=True)
            before = after
        gc.freeze()  # or each collection would go through all of PyTorch
    print(f"{count} schedules, {wrong} wrong; failed calls: {dict(FAILED)}")
    return wrong > 0


if __name__ == "__main__":
    WHAT = sys.argv[3:] or WHAT
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
