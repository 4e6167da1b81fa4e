"""Loaders and buffers with everything that they emit, as digests: what no model says.

The order of uses is not among it: tests/machine says that.

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
from emissions import Buffer, Loader, Wrap, plain

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


def echo(
    name: str,
    source: Callable[[], Any],
    factor: int,
    shuffle_buffer: int,
    batch_size: int | None = None,
    *,
    loader: type[pyecho.EchoLoader] = pyecho.EchoLoader,
    epochs: tuple[int | None, ...] = (None,),
    **arguments: Any,
) -> None:
    """Add a configuration of a loader."""
    arguments |= {"factor": factor, "shuffle_buffer": shuffle_buffer, "batch_size": batch_size}
    kind = "batches" if batch_size is None else "examples"
    add(f"{kind}: {name}", Loader(loader, source, arguments, epochs))


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

# ---------------------------------------------------------------- numbers that augment draws

source = made(sources.array, 9)
echo("augment, info", source, 3, 4, augment=noisy, with_info=True, epochs=TWO)
source = made(sources.array, 40)
echo("augment, info", source, 2, 9, 8, augment=noisy, with_info=True, epochs=CHOSEN)
source = made(sources.example, 40)
echo("augment in place", source, 2, 9, 8, augment=noisy_inside, seed=5)
torch_echo = partial(echo, loader=pyecho.torch.EchoLoader)
torch_echo("torch, augment", source, 2, 9, 8, augment=with_draws)

# ---------------------------------------------------------------- leaves of every kind and layout

echo("anything, buffer 7", made(sources.anything, 24), 3, 7)
for item in (sources.referring, sources.odd_dtypes, sources.views):
    echo(f"{item.__name__}, buffer 9", made(item, 30), 2, 9, 7)
echo("records", lambda: sources.stacked(range(40), (), sources.RECORD), 2, 9, 7, with_info=True)
torch_echo("torch, views", made(sources.tensor_views, 20), 2, 9, 7)
torch_echo("torch, dtypes, buffer 9", made(sources.torch_dtypes, 30), 2, 9, 7)

# ---------------------------------------------------------------- batches that are split

for make_batch in (sources.batch_odd, sources.batch_fortran):
    source = partial(sources.batches_of, make_batch, sources.UNEVEN)
    echo(f"{make_batch.__name__}, buffer 20", source, 2, 20, 8, unbatch=True)
source = partial(sources.batches_of, sources.batch_dict, sources.UNEVEN)
echo("split, unique", source, 3, 10, 8, unbatch=True, unique_in_batch=True, with_info=True)
source = partial(sources.batches_of, sources.batch_tensors, [7, 1, 13, 4])
torch_echo("torch, bfloat16, split", source, 3, 10, 8, unbatch=True)

# ---------------------------------------------------------------- buffers

SPEC = {"x": pyecho.Field(5, np.uint8), "y": pyecho.Field((), np.int64)}
arguments = {"factor": 2, "shuffle_buffer": 8, "batch_size": 7, "with_info": True}
add("buffer: reserve, capacity 8", Buffer(SPEC, sources.reserve_all, arguments))
arguments = {"factor": 3, "shuffle_buffer": 12, "batch_size": 8, "with_info": True}
add("buffer: mixed", Buffer(SPEC, sources.put_mixed, arguments))


def write() -> None:
    """Write the digests of the installed version."""
    digests = {name: digest(name) for name in CONFIGURATIONS}
    text = json.dumps({"pyecho": pyecho.__version__, "digests": digests}, indent=1)
    DIGESTS.write_text(text + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: configurations.py --write")
    write()
