"""Memory: slots and ready batches and nothing else, and the same after very many batches."""

import sys

import pytest
from scripts import run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

RESIDENT = """
        def resident():
            gc.collect()
            with open("/proc/self/smaps_rollup") as lines:
                kilobytes = next(line.split()[1] for line in lines if line.startswith("Pss:"))
            return int(kilobytes) * 1024
"""


@pytest.mark.parametrize(
    ("row_bytes", "capacity", "batch_size"),
    [(3072, 20_000, 256), (3072, 1, 8192), (150_528, 500, 64), (602_112, 100, 32)],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_buffer_takes_slots_plus_ready_batches(row_bytes, capacity, batch_size, threads):
    """The growth of resident memory is within 5% of the bytes of rows that it may hold."""
    run(
        RESIDENT
        + f"""
        def make(capacity, batch_size, **more):
            return pyecho.EchoBuffer(pyecho.Field({row_bytes}, np.uint8), batch_size=batch_size,
                                     factor=4, shuffle_buffer=capacity, threads={threads}, **more)
        make(1, 1)  # whatever the first buffer of a process takes
        before = resident()
        buffer = make({capacity}, {batch_size}, prefetch=2)
        grown = resident() - before
        # The pool; ahead of it 4 MiB and the fresh examples of the batches made ahead; these
        # batches, one in the hands of each thread, and two at the consumer.
        prefetch, held = max(2, min(32, 2**22 // ({row_bytes} * {batch_size}))), 2
        slots_ahead = max(1, min({capacity}, 2**22 // {row_bytes}))
        rows = {capacity} + slots_ahead + prefetch * -(-{batch_size} // 4)
        rows += (prefetch + {threads} + held) * {batch_size}
        expected = rows * {row_bytes}
        assert expected > 20e6, expected
        ratio = grown / expected
        assert 0.95 < ratio < 1.05, (ratio, grown, expected)
        # And while it runs.
        row, batches = np.zeros({row_bytes}, np.uint8), iter(buffer)
        def produce():
            with contextlib.suppress(pyecho.Closed):
                while True:
                    buffer.put(row)
        producer = threading.Thread(target=produce)
        producer.start()
        for _ in range(20):
            next(batches)
        ratio = (resident() - before) / expected
        buffer.stop()
        producer.join()
        assert 0.95 < ratio < 1.05, ratio
        del buffer, batches, _
        left = resident() - before
        assert left < 0.05 * expected, left
    """
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "batch_size=8",
        "batch_size=8, shuffle_buffer=100, threads=2, with_info=True",
        "batch_size=8, augment=lambda batch, rng: batch",
        "",
        "shuffle_buffer=10, with_info=True",
    ],
)
def test_memory_is_flat_over_tens_of_thousands_of_batches(arguments):
    run(
        RESIDENT
        + f"""
        rows = ({{"x": np.zeros(256), "name": str(number)}} for number in itertools.count())
        loader = pyecho.EchoLoader(rows, 4, {arguments})
        batches = iter(loader)
        for _ in range(10_000):
            next(batches)
        allocations, sizes = loader.stats().host_allocations, [resident()]
        for _ in range(4):
            for _ in range(10_000):
                next(batches)
            sizes.append(resident())
        assert loader.stats().host_allocations == allocations
        # A leak grows each time, and an arena of the allocator's once.
        growth = min(after - before for before, after in itertools.pairwise(sizes))
        assert growth < 200_000, sizes
    """
    )


@pytest.mark.parametrize("batch_size", [None, 8])
def test_memory_is_flat_over_many_epochs(batch_size):
    run(
        RESIDENT
        + f"""
        loader = pyecho.EchoLoader(np.zeros((64, 1024)), 2, batch_size={batch_size})
        def epochs(count):
            for _ in range(count):
                for batch in loader:
                    pass
        epochs(100)
        before = resident()
        epochs(300)
        growth = resident() - before
        assert growth < 2_000_000, growth
    """
    )


def test_kept_batches_give_their_memory_back():
    run(
        RESIDENT
        + """
        import warnings
        warnings.simplefilter("ignore", ResourceWarning)
        before = resident()
        kept = list(pyecho.EchoLoader(np.zeros((3000, 4096)), 1, batch_size=100))
        assert resident() - before > 90e6
        del kept
        assert resident() - before < 20e6
    """
    )
