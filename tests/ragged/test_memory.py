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
            options = dict(batch_size=8, factor=2, shuffle_buffer=8, threads={threads})
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
                    try:
                        call()
                        raise AssertionError("there was memory")
                    except MemoryError as error:
                        assert "memory; lower" in str(error), error
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
            return [[row.tobytes() for row in map(batch["x"].row, range(8))] for batch in batches]

        assert batches_of(attempts=3) == batches_of(attempts=0)
        """)


def test_item_that_the_system_has_no_memory_for_is_put_once_it_has_some():
    run("""
        import resource
        from functools import partial
        from pathlib import Path

        field = pyecho.Field((None,), "uint8", max_bytes=1 << 30)
        row = np.full(256 << 20, 7, "uint8")
        buffer = pyecho.EchoBuffer(field, batch_size=1, factor=1)
        limited = threading.Event()

        def source():
            yield row[:1]
            limited.wait()
            yield row

        options = {"batch_size": 1, "shuffle_buffer": 1, "fields": field}
        batches = iter(pyecho.EchoLoader(source(), 1, **options))
        next(batches)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20), -1))
        limited.set()
        for call in (partial(buffer.put, row), batches.__next__):
            with contextlib.suppress(MemoryError):
                call()
                raise AssertionError("there was memory")
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        buffer.put(row)
        buffer.close()
        assert [batch.row(0).tobytes() for batch in buffer] == [row.tobytes()]
        """)


def test_put_that_the_system_has_no_memory_for_keeps_no_reference():
    run("""
        import gc, resource, weakref
        from pathlib import Path

        MIB = 2**20
        field = pyecho.Field((None,), "uint8", max_bytes=256 * MIB)
        spec = {"x": field, "name": pyecho.Field((), object)}

        class Name:
            pass

        buffer = pyecho.EchoBuffer(spec, batch_size=2)
        row, name = np.zeros(128 * MIB, "uint8"), Name()
        kept = weakref.ref(name)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 20 * MIB, -1))
        try:
            buffer.put({"x": row, "name": name})
            assert False
        except MemoryError:
            pass
        del name
        gc.collect()
        assert kept() is None
    """)
