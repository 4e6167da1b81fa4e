"""Collation and augmentation, on every use."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import numpy.random  # not in a thread, see EchoLoader

from pyecho._core import ConfigError
from pyecho.config import Config
from pyecho.items.sharing import own
from pyecho.items.spec import Adapter
from pyecho.run.examples import batch_of, examples_of

_Functions = tuple[Callable[..., Any] | None, ...]


class Augmentation:
    """Applies ``augment_example``, ``collate_fn`` and ``augment`` to a batch: `make` of a link.

    The generator of each ``augment(batch, rng)`` is seeded by (seed, epoch, number), that of each
    ``augment_example(example, rng)`` also by the row, so that the result depends neither on the
    batches before it nor on threads. Random functions of PyTorch draw
    from a generator seeded likewise instead of the global one, see `pyecho.torch.random`; PyTorch
    must have been imported before the call.

    `augment_workers` threads may call it at the same time. If they are several, each uses a copy of
    the functions that no other thread uses meanwhile.

    `spec`: of an example. `adapter`: of the loader.
    """

    def __init__(self, config: Config, spec: Any, adapter: Adapter) -> None:
        self._config = config
        self._spec = spec
        self._adapter = adapter
        functions = config.augment_example, config.collate_fn, config.augment
        workers = config.augment_workers
        # Thread-safe, since list.pop() and list.append() are.
        self._idle: list[_Functions] = (
            [functions] if workers < 2 else [_copied(functions, each) for each in range(workers)]
        )

    def __call__(self, emission: Any, epoch: int, number: int) -> Any:
        """Return what becomes of an epoch's batch of this number, from 0; its info stays."""
        batch, info = emission if self._config.with_info else (emission, None)
        functions = self._idle.pop()
        try:
            batch = self._made(batch, functions, epoch, number)
        finally:
            self._idle.append(functions)
        return (batch, info) if self._config.with_info else batch

    def _made(self, batch: Any, functions: _Functions, epoch: int, number: int) -> Any:
        augment_example, collate_fn, augment = functions
        if augment_example is not None:
            begin = number * (self._config.batch_size or 1)
            examples = [
                self._called(augment_example, "augment_example", example, 3, epoch, use)
                for use, example in enumerate(self._examples(batch), begin)
            ]
            batch = batch_of(examples, self._adapter) if collate_fn is None else examples
        if collate_fn is not None:
            batch = self._with_seeded_torch(partial(collate_fn, batch), 5, epoch, number)
        if augment is None:
            return batch
        return self._called(augment, "augment", batch, 0, epoch, number)

    def _examples(self, batch: Any) -> Iterable[Any]:
        if self._config.collate_fn is None:
            return examples_of(batch, self._spec)
        return map(own, batch)  # its examples are those of other uses, too

    def _called(
        self, function: Any, name: str, given: Any, use: int, epoch: int, number: int
    ) -> Any:
        rng = np.random.Generator(random_bits(self._config, use, epoch, number))
        made = self._with_seeded_torch(partial(function, given, rng), use + 1, epoch, number)
        if made is None:
            what = "batch" if name == "augment" else "example"
            raise ConfigError(
                f"{name} returned None; it must return the {what}, also when it changes it in place"
            )
        return made

    def _with_seeded_torch(
        self, function: Callable[[], Any], use: int, epoch: int, number: int
    ) -> Any:
        if sys.modules.get("torch") is None:
            return function()
        from pyecho.torch.random import SeededTorch

        bits = random_bits(self._config, use, epoch, number)
        return SeededTorch(lambda: int(bits.random_raw())).call(function)


def _copied(functions: _Functions, worker: int) -> _Functions:
    """Return copies for one worker; the function itself where it cannot be copied."""
    memo: dict[int, Any] = {}
    try:
        copies = copy.deepcopy(functions, memo)  # all at once: they may be methods of one object
    except Exception:
        if len(functions) == 1:
            return functions
        return tuple(_copied((function,), worker)[0] for function in functions)
    for part in memo.values():
        _set_apart(part, worker)
    return copies


def _set_apart(generator: Any, worker: int) -> None:
    """Give a copied generator numbers of its own, or each worker would draw the same ones."""
    torch = sys.modules.get("torch")
    if isinstance(generator, random.Random):
        generator.seed(generator.getrandbits(128) + worker)
    elif isinstance(generator, np.random.RandomState):
        generator.seed([worker, *generator.randint(0, 2**32, 4, np.uint32)])
    elif torch is not None and isinstance(generator, torch.Generator):
        generator.manual_seed((generator.initial_seed() + worker) % 2**63)
    elif isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)([worker, *generator.integers(0, 2**32, 4)]).state


def random_bits(config: Config, use: int, epoch: int, number: int) -> np.random.Philox:
    """Return the random bits for a batch of an epoch; each `use` and rank has others."""
    return np.random.Philox(key=config.seed, counter=[0, use + (config.rank << 8), number, epoch])
