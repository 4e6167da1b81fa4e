"""A view stays valid and unchanged for as long as it is held, whatever becomes of the rest."""

import gc

import numpy as np
import pytest
from scripts import run

import pyecho

hoarding = pytest.mark.filterwarnings("ignore:the consumer keeps batches:ResourceWarning")


def rows(count, width=64):
    return np.arange(count * width).reshape(count, width)


@hoarding
@pytest.mark.parametrize("threads", [1, 4])
def test_consumer_that_keeps_its_batches_sees_them_unchanged(threads):
    """A bug of others: kept batches were overwritten by later ones."""
    source = rows(2000)
    arguments = {"factor": 2, "batch_size": 16, "shuffle_buffer": 50}
    copied = [batch.copy() for batch in pyecho.EchoLoader(source, threads=1, **arguments)]
    kept = list(pyecho.EchoLoader(source, threads=threads, **arguments))
    assert len(kept) == 250
    assert all(np.array_equal(one, other) for one, other in zip(kept, copied, strict=True))
    addresses = {batch.ctypes.data for batch in kept}
    assert len(addresses) == len(kept), "no two of them share memory"


@hoarding
def test_views_outlive_iterator_loader_and_source():
    source = [row.copy() for row in rows(40)]
    loader = pyecho.EchoLoader(source, 2, batch_size=8, shuffle_buffer=0)
    batches = iter(loader)
    kept = [next(batches)[2:, ::2] for _ in range(5)]
    expected = [view.copy() for view in kept]
    loader.close()
    del batches, loader, source
    gc.collect()
    for view, copy in zip(kept, expected, strict=True):
        assert np.array_equal(view, copy)
        view += 1


@hoarding
def test_info_keeps_its_memory_too():
    loader = pyecho.EchoLoader(rows(100), 2, batch_size=4, shuffle_buffer=0, with_info=True)
    batches = iter(loader)
    _, info = next(batches)
    for batch, _ in batches:
        del batch
    assert info.source_index.tolist() == [0, 0, 1, 1]
    assert info.use.tolist() == [0, 1, 0, 1]


def test_views_of_a_reservation_outlive_the_buffer():
    buffer = pyecho.EchoBuffer(pyecho.Field(4, int), batch_size=1, factor=1)
    reservation = buffer.reserve()
    view = reservation.views
    view[...] = 5
    buffer.stop()
    del buffer, reservation
    gc.collect()
    view += 1
    assert view.tolist() == [6] * 4


@hoarding
def test_torch_tensors_hold_the_batch():
    torch = pytest.importorskip("torch")
    import pyecho.torch

    loader = pyecho.torch.EchoLoader(rows(100), 2, batch_size=4, shuffle_buffer=0)
    batches = iter(loader)
    first = next(batches)
    part, flat = first[1:, :3], first.view(-1)
    copy = first.clone()
    del first
    for batch in batches:
        batch.zero_()
    del batches, loader
    gc.collect()
    assert torch.equal(part, copy[1:, :3])
    assert torch.equal(flat, copy.view(-1))


def test_views_tensors_and_capsules_in_globals_at_exit_are_no_trouble():
    """A bug of others: deleters that ran without the GIL, or after the interpreter was gone."""
    run("""
        import torch, warnings
        warnings.simplefilter("ignore", ResourceWarning)  # batches are kept, and that is the point
        rows = np.arange(400).reshape(100, 4)
        loader = pyecho.EchoLoader(rows, 2, batch_size=4, shuffle_buffer=0)
        batches = iter(loader)
        view = next(batches)[1:]
        tensor = torch.from_numpy(next(batches))
        shared = torch.from_dlpack(next(batches))
        capsule = next(batches).__dlpack__()
        memory = memoryview(next(batches))
        buffer = pyecho.EchoBuffer(pyecho.Field(4, int), batch_size=2)
        reservation = buffer.reserve()
        views = reservation.views
        cycle = [view, batches, loader]
        cycle.append(cycle)
    """)
