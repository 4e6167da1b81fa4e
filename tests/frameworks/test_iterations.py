"""Iterators for other libraries lose nothing wherever Ctrl-C lands."""

from types import SimpleNamespace

from interrupt_points import nothing_is_lost

from pyecho.fitted import Wiring
from pyecho.integrations.tf import LOOKS, Iterations, _Iteration
from pyecho.source.reader import Chained

BATCHES = list(range(7))


class Loader:
    """Counts its iterations."""

    def __init__(self):
        self._run = SimpleNamespace(epochs=SimpleNamespace(wiring=Wiring()))
        self.iterations = 0

    def __iter__(self):
        self.iterations += 1
        return iter(BATCHES)


def test_elements_of_lists_survive_an_interrupt_at_each_point():
    lists = [[0, 1, 2], [], [3], [4, 5]]
    assert nothing_is_lost(lambda: Chained(iter(lists), iter), [*range(6)], Chained.__next__) > 10


def test_iterations_survive_an_interrupt_at_each_point():
    def make():
        return iter(Iterations(Loader()))

    methods = (_Iteration.__next__, _Iteration._end)
    assert nothing_is_lost(make, BATCHES, *methods) > 3 * len(BATCHES)


def test_iteration_that_is_left_early_was_a_look():
    for looked in range(len(BATCHES) + 1):
        loader = Loader()
        iterations = Iterations(loader)
        look = iter(iterations)
        assert [next(look) for _ in range(looked)] == BATCHES[:looked]
        assert list(iterations) == BATCHES
        assert loader.iterations == (1 if looked <= LOOKS else 2)
        assert list(iterations) == BATCHES
