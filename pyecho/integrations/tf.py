"""A loader as a `tf.data.Dataset`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from pyecho._core import ConfigError
from pyecho.integrations.iterations import Converted, Iterations
from pyecho.items.nest import leaves_of
from pyecho.items.nodes import node_of


def tf_dataset(loader: Any, *, as_array: Callable[[Any], Any], rows: int | None) -> Any:
    """Return a dataset each of whose iterations is one of the loader.

    Parameters
    ----------
    loader
        Its first batch is read now, to know the shapes and dtypes.
    as_array
        Shows a leaf as an ndarray, or returns None.
    rows
        Of each batch, None if one may be short.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise ImportError("to_tf_dataset() needs TensorFlow: pip install tensorflow") from error

    iterations = Iterations(loader)
    first = next(iter(iterations), None)
    if first is None:
        raise ConfigError("to_tf_dataset() needs a batch to tell shapes, but the source is empty")

    def spec_of(leaf: Any) -> Any:
        shape = [rows, *leaf.shape[1:]] if leaf.ndim else []
        return tf.TensorSpec(shape, tf.as_dtype(leaf.dtype))

    signature = tf.nest.map_structure(spec_of, _structure(first, as_array))

    def batches() -> Converted:
        return Converted(iter(iterations), lambda batch: _structure(batch, as_array))

    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    count = operator.length_hint(loader, -1)
    return dataset if count < 0 else dataset.apply(tf.data.experimental.assert_cardinality(count))


def _structure(batch: Any, as_array: Callable[[Any], Any]) -> Any:
    """Return a batch as tf.data takes it: dicts, tuples and namedtuples of arrays.

    Other mappings and dataclasses become dicts, other nodes tuples, lists of objects arrays.
    """
    node = node_of(batch)
    if node is None or (node.is_list and not any(map(_has_arrays, node.children))):
        array = as_array(batch)
        array = np.asarray(batch) if array is None else array
        if array.dtype.hasobject:
            raise ConfigError(
                f"tf.data has no tensors of objects, and a batch has a {type(batch).__name__} of "
                "them; leave them out, or make numbers or texts of them, in the source or augment"
            )
        return array
    children = [_structure(child, as_array) for child in node.children]
    if hasattr(batch, "_fields"):
        return node.rebuild(children)
    named = isinstance(batch, Mapping) or is_dataclass(batch)
    return dict(zip(node.keys, children, strict=True)) if named else tuple(children)


def _has_arrays(nest: Any) -> bool:
    return any(hasattr(leaf, "dtype") for leaf in leaves_of(nest))
