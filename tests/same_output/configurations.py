"""Loaders and buffers with everything that they emit, as digests.

The table is CONFIGURATIONS; digests.json has what each of them emitted under the version of pyecho
that the file names. ``configurations.py --write`` writes it for the installed version.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import sources
import torch
from emissions import Buffer, Loader, Wrap, plain
from torch.utils.data import DataLoader, TensorDataset

import pyecho
import pyecho.torch

DIGESTS = Path(__file__).with_name("digests.json")

CONFIGURATIONS: dict[str, Loader | Buffer] = {}


def digest(name: str, *, wrap: Wrap | None = None, **arguments: Any) -> str:
    """Return a digest of all that a configuration emits.

    Parameters
    ----------
    name
        A key of CONFIGURATIONS.
    wrap
        What the loader reads instead of the source: ``wrap(source)``.
    arguments
        Arguments of the loader or buffer that go before those of the table.
    """
    epochs = CONFIGURATIONS[name].emissions(wrap, arguments)
    emitted = [[plain(emission) for emission in epoch] for epoch in epochs]
    return blake2b(repr(emitted).encode(), digest_size=8).hexdigest()


def add(name: str, configuration: Loader | Buffer) -> None:
    """Enter a configuration into the table, under a name of its own."""
    if name in CONFIGURATIONS:
        raise ValueError(f"there are two configurations {name}")
    CONFIGURATIONS[name] = configuration


def made(item: Callable[[int], Any], count: int) -> Callable[[], list[Any]]:
    """Return a source: a list of the first items."""
    return lambda: [item(number) for number in range(count)]


def batches(
    name: str,
    source: Callable[[], Any],
    factor: int,
    shuffle_buffer: int,
    *,
    loader: type[pyecho.EchoLoader] = pyecho.EchoLoader,
    epochs: tuple[int | None, ...] = (None,),
    **arguments: Any,
) -> None:
    """Add a configuration of batch echoing."""
    arguments |= {"factor": factor, "shuffle_buffer": shuffle_buffer}
    add(f"batches: {name}", Loader(loader, source, arguments, epochs))


def examples(
    name: str,
    source: Callable[[], Any],
    factor: int,
    shuffle_buffer: int,
    batch_size: int,
    *,
    loader: type[pyecho.EchoLoader] = pyecho.EchoLoader,
    epochs: tuple[int | None, ...] = (None,),
    can_wrap: bool = True,
    **arguments: Any,
) -> None:
    """Add a configuration of example echoing."""
    arguments |= {"factor": factor, "shuffle_buffer": shuffle_buffer, "batch_size": batch_size}
    add(f"examples: {name}", Loader(loader, source, arguments, epochs, can_wrap))


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    """Add random bits to a batch; these are the same in all versions of NumPy."""
    noise = rng.bit_generator.random_raw(batch.size).reshape(batch.shape)
    return batch.view(np.uint32) + noise


def noisy_inside(batch: Any, rng: np.random.Generator) -> Any:
    """Change a batch in place, by as many draws as its rows ask for."""
    for row, label in enumerate(batch["label"]):
        batch["image"][row] += np.uint8(rng.bit_generator.random_raw(1 + label % 3)[-1] % 256)
    return batch


def with_draws(batch: Any, rng: np.random.Generator) -> Any:
    """Add a leaf to a batch."""
    return {**batch, "draws": rng.bit_generator.random_raw(2)}


TWO = (None, None)
CHOSEN = (3, None, 0, 3, 2**40)

# ---------------------------------------------------------------- batch echoing

for capacity in (0, 5):
    for factor in (1, 3):
        title = f"arrays, factor {factor}, buffer {capacity}"
        batches(title, made(sources.array, 12), factor, capacity)

for item in (sources.example, sources.nested, sources.tensors, sources.record, sources.anything):
    batches(f"{item.__name__}, buffer 7", made(item, 24), 3, 7)
batches("int, buffer 7", lambda: range(40), 2, 7, epochs=(None, None, None))
batches("info, buffer 7", made(sources.array, 15), 3, 7, with_info=True)
batches("copies, buffer 7", made(sources.nested, 15), 2, 7, copy=True)
batches("augment, buffer 7", made(sources.array, 15), 3, 7, augment=noisy)
batches("seed 18446744073709551615", lambda: range(60), 3, 20, seed=2**64 - 1)
batches("many", lambda: range(500), 4, 100, prefetch=9)
batches("factor 40", lambda: range(10), 40, 4)
batches("chosen epochs", made(sources.name, 20), 2, 8, epochs=CHOSEN)
batches("augment, info", made(sources.array, 9), 3, 4, augment=noisy, with_info=True, epochs=TWO)

# ---------------------------------------------------------------- example echoing

for size in (1, 7):
    for capacity in (0, 64):
        title = f"batch size {size}, buffer {capacity}"
        examples(title, made(sources.example, 90), 3, capacity, size)
examples(
    "unique, batch size 7",
    made(sources.example, 90), 3, 40, 7, unique_in_batch=True, with_info=True,
)  # fmt: skip
examples("drop last, batch size 7", made(sources.array, 41), 3, 8, 7, drop_last=True, epochs=TWO)
examples("info, batch size 7", made(sources.array, 41), 2, 8, 7, with_info=True, epochs=TWO)

for factor in (2, 11):
    examples(f"factor {factor}", made(sources.numpy_pair, 40), factor, 16, 7)
title = "seed 18446744073709551615"
examples(title, lambda: list(range(60)), 3, 20, 8, seed=2**64 - 1, with_info=True)
for item in (sources.nested, sources.referring, sources.odd_dtypes, sources.views):
    examples(f"{item.__name__}, buffer 9", made(item, 30), 2, 9, 7)
for width in (13, 1025):
    item = partial(sources.pattern, shape=width, dtype="u1")
    examples(f"rows of {width} bytes", made(item, 100), 2, 40, 16)
item = partial(sources.pattern, shape=80_000, dtype="u1")
examples("long rows", made(item, 20), 2, 6, 4)

examples("chunks of an array", lambda: sources.pattern(1, (12, 125_000), "u1"), 1, 4, 4)
examples("records", lambda: sources.stacked(range(40), (), sources.RECORD), 2, 9, 7, with_info=True)
# One by one, such rows are strings, which travel by reference.
examples("strings", lambda: np.array([*map(sources.name, range(30))]), 2, 9, 7, can_wrap=False)
examples("objects", lambda: np.array(["a", ("b", 1), None, 2.5], object), 2, 3, 3)
examples("chosen epochs", made(sources.example, 30), 2, 8, 7, epochs=CHOSEN, with_info=True)
examples("unique, tight", made(sources.array, 50), 4, 8, 8, unique_in_batch=True, epochs=TWO)
examples("nothing but short", made(sources.array, 3), 2, 5, 7, drop_last=True, epochs=TWO)
examples("augment in place", made(sources.example, 40), 2, 9, 8, augment=noisy_inside, seed=5)
examples(
    "augment, info", made(sources.array, 40), 2, 9, 8, augment=noisy, with_info=True, epochs=CHOSEN
)

# ---------------------------------------------------------------- batches that are split

for make_batch in (sources.batch_dict, sources.batch_odd, sources.batch_fortran):
    source = partial(sources.batches_of, make_batch, sources.UNEVEN)
    examples(f"{make_batch.__name__}, buffer 20", source, 2, 20, 8, unbatch=True)
source = partial(sources.batches_of, sources.batch_dict, sources.UNEVEN)
examples("split, batch size 7", source, 3, 10, 7, unbatch=True, with_info=True, epochs=TWO)
examples("split, unique", source, 3, 10, 8, unbatch=True, unique_in_batch=True, with_info=True)
source = partial(sources.batches_of, sources.batch_array, [600, 1, 600])
examples("split, large batches", source, 2, 50, 64, unbatch=True, epochs=TWO)

# ---------------------------------------------------------------- torch


def data_loader() -> DataLoader:
    """Return a DataLoader that works in this process, in order."""
    data = [sources.tensor_pair(number) for number in range(45)]
    dataset = TensorDataset(*(torch.stack(column) for column in zip(*data, strict=True)))
    return DataLoader(dataset, batch_size=8, shuffle=False, num_workers=0)


torch_batches = partial(batches, loader=pyecho.torch.EchoLoader)
torch_examples = partial(examples, loader=pyecho.torch.EchoLoader)
torch_batches("torch, DataLoader, shuffled", data_loader, 3, 4, with_info=True)
torch_batches("torch, dtypes", made(sources.torch_dtypes, 12), 2, 5)
torch_examples(
    "torch, DataLoader, unique", data_loader, 3, 20, 7, unbatch=True, unique_in_batch=True
)
torch_examples("torch, views", made(sources.tensor_views, 20), 2, 9, 7)
torch_examples("torch, augment", made(sources.example, 40), 2, 9, 8, augment=with_draws)
torch_examples("torch, dtypes, buffer 9", made(sources.torch_dtypes, 30), 2, 9, 7)
source = partial(sources.batches_of, sources.batch_tensors, [7, 1, 13, 4])
torch_examples("torch, bfloat16, split", source, 3, 10, 8, unbatch=True)
examples("tensors as arrays", made(sources.tensors, 30), 2, 9, 7)

# ---------------------------------------------------------------- buffers


def buffer(
    name: str,
    spec: Any,
    fill: Callable[[pyecho.EchoBuffer], None],
    factor: int,
    capacity: int,
    batch_size: int,
    *,
    before: bool = False,
    **arguments: Any,
) -> None:
    """Add a configuration of an EchoBuffer."""
    arguments |= {"factor": factor, "shuffle_buffer": capacity, "batch_size": batch_size}
    add(f"buffer: {name}", Buffer(spec, fill, arguments, before))


SPEC = {"x": pyecho.Field(5, np.uint8), "y": pyecho.Field((), np.int64)}
ROW = {"image": pyecho.Field(5, np.uint8), "label": pyecho.Field((), np.int64)}
NUMBER = pyecho.Field((), np.int64)
count_up = partial(sources.put_all, int)

buffer("reserve, capacity 8", SPEC, sources.reserve_all, 2, 8, 7, with_info=True)
fill = partial(sources.put_batches, sources.batch_dict)
buffer("put_batch, capacity 8", ROW, fill, 2, 8, 8, slots_ahead=30)
buffer("mixed", SPEC, sources.put_mixed, 3, 12, 8, with_info=True)
buffer("put before", NUMBER, partial(count_up, 15), 3, 20, 4, before=True)
buffer("unique", NUMBER, partial(count_up, 50), 4, 8, 8, unique_in_batch=True, with_info=True)
buffer("epoch", NUMBER, partial(count_up, 50), 3, 10, 8, seed=7, epoch=2**63)


def write() -> None:
    """Write the digests of the installed version."""
    digests = {name: digest(name) for name in CONFIGURATIONS}
    text = json.dumps({"pyecho": pyecho.__version__, "digests": digests}, indent=1)
    DIGESTS.write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: configurations.py --write")
    write()
