"""A system without memory for a batch: an error, and nothing is lost."""

import pytest
from scripts import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batch_that_the_system_has_no_memory_for_comes_once_it_has_some(threads):
    run(f"""
        import resource
        from pathlib import Path

        MIB = 2**20
        field = pyecho.Field((None,), "uint8", max_bytes=17 * MIB)
        # A batch is larger than the heap of a thread, all of which counts as in use.
        rows = [np.full(16 * MIB + number, number, "uint8") for number in range(8)]

        def batches_of(attempts):
            options = dict(batch_size=8, factor=2, capacity=8, threads={threads})
            buffer = pyecho.EchoBuffer({{"x": field}}, **options)
            batches = iter(buffer)
            for row in rows[:7]:
                buffer.put({{"x": row}})
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            limit = pages * resource.getpagesize() + 20 * MIB  # for an item more, not for the batch
            if attempts:
                resource.setrlimit(resource.RLIMIT_AS, (limit, -1))
            buffer.put({{"x": rows[7]}})
            buffer.close()
            for attempt in range(attempts):
                for call in (batches.__next__, buffer.state_dict):
                    with contextlib.suppress(MemoryError):
                        call()
                        raise AssertionError("there was memory")
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
            return [[row.tobytes() for row in map(batch["x"].row, range(8))] for batch in batches]

        assert batches_of(attempts=3) == batches_of(attempts=0)
        """)
