"""Iterators for other libraries lose nothing wherever Ctrl-C lands."""

from types import SimpleNamespace

from interrupt_points import nothing_is_lost

from pyecho.integrations.iterations import LOOKS, Converted, Iterations, _Iteration

BATCHES = list(range(7))


class Loader:
    """Counts its iterations."""

    def __init__(self):
        self._run = SimpleNamespace(engine=SimpleNamespace(let_grow=lambda: None))
        self.iterations = 0

    def __iter__(self):
        self.iterations += 1
        return iter(BATCHES)


def test_converted_batches_survive_an_interrupt_at_each_point():
    ended = []

    def negated(batch):
        return -batch

    def make():
        return Converted(iter(BATCHES), negated, lambda: ended.append(True))

    expected = [-batch for batch in BATCHES]
    assert nothing_is_lost(make, expected, Converted.__next__, negated) > 5 * len(BATCHES)
    assert len(ended) > 2 * len(BATCHES)


def test_iterations_survive_an_interrupt_at_each_point():
    def make():
        return iter(Iterations(Loader()))

    methods = (_Iteration.__next__, Iterations.look, Iterations.end)
    assert nothing_is_lost(make, BATCHES, *methods) > 3 * len(BATCHES)


def test_an_iteration_that_is_left_early_was_a_look():
    for looked in range(len(BATCHES) + 1):
        loader = Loader()
        iterations = Iterations(loader)
        look = iter(iterations)
        assert [next(look) for _ in range(looked)] == BATCHES[:looked]
        assert list(iterations) == BATCHES
        assert loader.iterations == (1 if looked <= LOOKS else 2)
        assert list(iterations) == BATCHES
