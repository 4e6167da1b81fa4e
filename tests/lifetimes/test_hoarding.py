"""A consumer that keeps batches: growth with one warning, or BufferExhausted and recovery."""

import numpy as np
import pytest

import pyecho

ROW = np.zeros(512)


def loader_of(count=200, **arguments):
    arguments = {"threads": 1, "shuffle_buffer": 0} | arguments
    return pyecho.EchoLoader([ROW] * count, 2, batch_size=4, **arguments)


def least_bytes(**arguments):
    with pytest.raises(pyecho.ConfigError) as error:
        next(iter(loader_of(max_bytes=0, **arguments)))
    return int(str(error.value).split("(")[1].split()[0])


def test_warning_turned_into_an_error_loses_no_batch():
    batches = iter(pyecho.EchoLoader(np.arange(100), 2, batch_size=4, shuffle_buffer=0))
    kept = []
    warned = 0
    while True:
        try:
            kept.append(next(batches))
        except ResourceWarning:
            warned += 1
        except StopIteration:
            break
    assert warned == 1
    assert np.concatenate(kept).tolist() == [n for n in range(100) for _ in range(2)]


def test_max_bytes_ends_in_buffer_exhausted_that_counts_the_leases():
    batches = iter(loader_of(max_bytes=least_bytes()))
    kept = []
    with pytest.raises(
        pyecho.BufferExhausted, match=r"outstanding leases.*drop batches.*max_bytes"
    ) as e:
        kept.extend(batches)
    assert isinstance(e.value, MemoryError)
    assert f"{len(kept)} outstanding leases" in str(e.value)


def unchanged(batch, rng):
    return batch


@pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")
@pytest.mark.parametrize("workers", [None, 1, 3])
def test_dropping_one_lease_lets_the_loader_go_on_without_loss(workers):
    links = {} if workers is None else {"augment": unchanged, "augment_workers": workers}

    def new_loader():
        rows, options = np.arange(4000).reshape(200, 20), {"batch_size": 4, "shuffle_buffer": 0}
        return pyecho.EchoLoader(rows, 2, max_bytes=20 * 4096, **options, **links)

    loader = new_loader()
    batches = iter(loader)
    kept, emitted, exhausted = [], [], 0
    while True:
        try:
            batch = next(batches)
        except pyecho.BufferExhausted:
            exhausted += 1
            if exhausted == 3:
                state, had = loader.state_dict(), len(emitted)
            kept.pop(0)
            continue
        except StopIteration:
            break
        emitted += batch[:, 0].tolist()
        kept.append(batch)
        del batch
    assert exhausted > 10
    assert emitted == [20 * n for n in range(200) for _ in range(2)]
    other = new_loader()
    other.load_state_dict(state)
    assert np.concatenate([batch[:, 0].copy() for batch in other]).tolist() == emitted[had:]


def test_view_counts_as_its_batch():
    loader = loader_of(max_bytes=least_bytes())
    batches = iter(loader)
    views = []
    with pytest.raises(pyecho.BufferExhausted):
        for batch in batches:
            views.append(batch[:1, :1])
            del batch
    assert loader.stats().outstanding_leases == len(views)


def test_end_of_input_needs_no_memory():
    """When every batch there is has been handed out, keeping them all is no reason to fail."""
    for count in range(2, 20):
        loader = loader_of(count, max_bytes=least_bytes(threads=1), threads=1)
        kept = []
        try:
            kept.extend(loader)
        except pyecho.BufferExhausted:
            assert len(kept) < -(-2 * count // 4)
        else:
            assert len(kept) == -(-2 * count // 4)
