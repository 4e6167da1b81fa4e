"""A loader as a `tf.data.Dataset`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pyecho._core import ConfigError
from pyecho.items.nest import leaves_of, node_of
from pyecho.items.spec import refuse_masked

if TYPE_CHECKING:
    from pyecho.loader import EchoLoader

LOOKS = 2
"""Batches that Keras and tf.data look at beforehand, to know what they are like."""


class Look(NamedTuple):
    """One iteration of a loader, and the batches that were seen of it."""

    batches: Iterator[Any]
    seen: list[Any]


class Iterations:
    """The iterations of a loader, one after the other, for libraries that look at batches first.

    An iteration that is left within its first `LOOKS` batches was a look: the next one begins with
    the same batches and goes on from there. Any other one that is left is over, as with the loader.
    None loses a batch if Ctrl-C lands in it.
    """

    def __init__(self, loader: EchoLoader) -> None:
        loader._run.epochs.wiring.grows_quietly = True
        self.loader = loader
        self.look: Look | None = None
        """The last iteration while it may be a look."""

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator for the next iteration, which begins with the first ``next()``."""
        return _Iteration(self)


class _Iteration(Iterator[Any]):
    def __init__(self, iterations: Iterations) -> None:
        self._all = iterations
        self._look: Look | None = None
        self._place = 0  # in the batches that were seen

    def __next__(self) -> Any:
        if self._look is None:
            if self._all.look is None:
                self._all.look = Look(iter(self._all.loader), [])
            self._look = self._all.look
        place, (batches, seen) = self._place, self._look
        if place == LOOKS:
            self._end()
        if place == len(seen):
            seen.extend(islice(batches, 1))  # takes and keeps it in one call
        if place == len(seen):
            self._end()
            raise StopIteration
        batch = seen[place]
        if place == LOOKS:
            del seen[place]
        else:
            self._place = place + 1
        return batch

    def _end(self) -> None:
        """Have another iteration begin next time; this one was no look."""
        if self._all.look is self._look:
            self._all.look = None


def to_tf_dataset(loader: EchoLoader) -> Any:
    """Return a `tf.data.Dataset` of a loader's batches; each iteration of it is one of the loader.

    Dicts, tuples and namedtuples stay what they are, with a tensor for each array; lists of texts
    become tensors of them, other nodes tuples, or dicts if they have names. The shapes are those of
    the first batch, which is read now; the first axis is None unless all batches have as many rows.
    A dataset left within its first two batches (Keras only looks at them) yields them again;
    otherwise leaving it ends the iteration. TensorFlow turns errors into its own. Raises
    `ConfigError` if the source is empty, or a batch has objects that are neither numbers nor texts.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError("to_tf_dataset() needs TensorFlow: pip install tensorflow") from error

    iterations = Iterations(loader)
    as_array, rows = loader._adapter.as_array, loader._static_rows()
    first = next(iter(iterations), None)
    if first is None:
        raise ConfigError("to_tf_dataset() needs a batch to tell shapes, but the source is empty")

    def spec_of(leaf: Any) -> Any:
        shape = [rows, *leaf.shape[1:]] if leaf.ndim else []
        return tf.TensorSpec(shape, tf.as_dtype(leaf.dtype))

    signature = tf.nest.map_structure(spec_of, _structure(as_array, first))

    def batches() -> Iterator[Any]:  # runs in threads of TensorFlow's, where no Ctrl-C lands
        return map(partial(_structure, as_array), iterations)

    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    count = operator.length_hint(loader, -1)
    return dataset if count < 0 else dataset.apply(tf.data.experimental.assert_cardinality(count))


def _structure(as_array: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch as tf.data takes it: dicts, tuples and namedtuples of arrays.

    Other mappings and dataclasses become dicts, other nodes tuples, lists of objects arrays.
    """
    node = node_of(batch)
    if node is None or (node.is_list and not any(map(_has_arrays, node.children))):
        array = as_array(batch)
        refuse_masked(array)
        array = np.asarray(batch) if array is None else array
        if array.dtype.hasobject:
            raise ConfigError(
                f"tf.data has no tensors of objects, and a batch has a {type(batch).__name__} of "
                "them; leave them out, or make numbers or texts of them, in the source or augment"
            )
        return array
    children = [_structure(as_array, child) for child in node.children]
    if hasattr(batch, "_fields"):
        return node.rebuild(children)
    named = isinstance(batch, Mapping) or is_dataclass(batch)
    return dict(zip(node.keys, children, strict=True)) if named else tuple(children)


def _has_arrays(nest: Any) -> bool:
    return any(hasattr(leaf, "dtype") for leaf in leaves_of(nest))
