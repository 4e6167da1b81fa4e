"""The loader for JAX."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

try:
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding
except ImportError as error:
    raise ImportError("pyecho.jax needs JAX: pip install jax") from error

import pyecho
from pyecho._core import ConfigError, EchoError
from pyecho.config import Factor, Options, with_options
from pyecho.fitted import Fitted
from pyecho.items.nest import flatten, map_nest
from pyecho.items.spec import Adapter, Field, is_tensor, plain_tensor, refuse_masked
from pyecho.run.host import add_augmentation, example_echo, item_echo
from pyecho.run.link import of_state, to_state
from pyecho.run.pipeline import MakePipeline, Pipeline
from pyecho.run.run import Run
from pyecho.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Unpack

__all__ = ["EchoLoader"]


class JaxAdapter(Adapter):
    """Batches are assembled as arrays; `Placement` brings them to the devices."""

    def as_array(self, leaf: Any) -> Any:
        """Return a leaf as an ndarray, also a tensor of bfloat16; or None if it is not an array."""
        if is_tensor(leaf) and str(leaf.dtype) == "torch.bfloat16":
            return np.asarray(jax.dlpack.from_dlpack(plain_tensor(leaf)))
        return super().as_array(leaf)

    def decoder(self, fields: list[Field]) -> Callable[[Any, int], Any] | None:
        """Raise `ConfigError` if JAX has no arrays of a dtype."""
        for field in fields:
            if not (field.by_reference or _has_dtype(field.dtype)):
                raise ConfigError(
                    f"JAX has no arrays of dtype {field.dtype}; convert it in the source, or use "
                    "pyecho.EchoLoader, which yields NumPy arrays"
                )
        return None


ADAPTER = JaxAdapter()


class EchoLoader(pyecho.EchoLoader):
    """A `pyecho.EchoLoader` whose batches are `jax.Array`, put on devices ahead of the consumer.

    ::

        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)
        for batch in EchoLoader(source, 3, batch_size=256, sharding=mesh, pad_last=True): ...

    Arguments, methods and order of the output are as in `pyecho.EchoLoader`. A thread of
    pyecho's puts `prefetch` batches on the devices while the consumer computes; in batch echoing
    every item is put once and shared by its uses. Arrays, tensors in host memory and, in example
    echoing, numbers arrive as `jax.Array` with the dtype that JAX gives them (64-bit numbers have
    32 bits without ``jax_enable_x64``); what is no array stays as it is, and so does `EchoInfo`.
    A batch never changes, for as long as it or a step under way is in use; `max_bytes` must have
    room for the batches of all such steps. A step that donates its batch needs ``copy=True`` in
    batch echoing.

    Parameters
    ----------
    sharding
        Where batches go: a `jax.sharding.Sharding`; a `jax.sharding.Mesh`, whose axes all divide
        the rows; a device; or None, JAX's default device. The spec of a `NamedSharding` is cut to
        the axes of each array. If it spans several processes, each loader has the rows of its own
        process, and `batch_size` counts these.
    pad_last
        As in `pyecho.EchoLoader`, so that a step is compiled once.

    Raises
    ------
    ConfigError
        If `batch_size` is not divisible by the parts that `sharding` makes of the rows, or the last
        batch may be short there (pass `pad_last` or `drop_last`); with the first item, if JAX has
        no arrays of a dtype.
    EchoError
        In ``state_dict(payload=True)``, if arrays span several processes.
    """

    _adapter = ADAPTER

    @with_options
    def __init__(
        self,
        source: Any,
        factor: Factor = 2,
        *,
        sharding: Any = None,
        **options: Unpack[Options],
    ) -> None:
        if isinstance(sharding, Mesh):
            sharding = NamedSharding(sharding, PartitionSpec(sharding.axis_names))
        if sharding is not None and not isinstance(sharding, Sharding | jax.Device):
            raise ConfigError(
                "sharding must be a jax.sharding.Sharding, a jax.sharding.Mesh, a device or None, "
                f"got {sharding!r}"
            )
        self._sharding = sharding
        super().__init__(source, factor, **options)
        self._check_parts()

    def _may_read_in_consumer(self) -> bool:
        return False

    def _new_run(self) -> Run:
        run = super()._new_run()
        # By the batches of steps under way, as many as JAX allows.
        run.epochs.wiring.grows_quietly = True
        return run

    def _pipeline_maker(self) -> MakePipeline:
        return partial(jax_pipeline, sharding=self._sharding)

    def _check_parts(self) -> None:
        rows, parts = self._config.batch_size, Placement(self._sharding).parts()
        if rows is None or parts == 1:
            return
        if rows % parts:
            raise ConfigError(
                f"sharding divides the rows of a batch into {parts} parts, so batch_size must be a "
                f"multiple of {parts}, got {rows}"
            )
        if self._static_rows() is None and not self._config.steps_per_epoch:
            raise ConfigError(
                f"the last batch of an epoch may be short, and sharding divides it into {parts} "
                "parts; pass pad_last=True or drop_last=True"
            )


class Placement:
    """Puts the arrays of a nest on devices. For one thread at a time.

    JAX may use the memory of an array as it is, and then keeps the array: after the call nothing
    may write to it.
    """

    def __init__(self, sharding: Any) -> None:
        self._sharding = sharding  # or a device; None is JAX's default device
        self._spans_processes = isinstance(sharding, Sharding) and not sharding.is_fully_addressable
        self.put_bytes = 0
        """Bytes of host memory that were put on devices."""

    def __call__(self, batch: Any) -> Any:
        """Return the nest with a `jax.Array` for each array; other leaves stay as they are."""
        leaves, structure = flatten(batch)
        leaves = list(map(_shown, leaves))
        put = iter(self._put(list(filter(_is_array, leaves))))
        return structure.unflatten(next(put) if _is_array(leaf) else leaf for leaf in leaves)

    def item(self, item: Any) -> Any:
        """Return an item on the devices. The memory of the source is free again."""

        def own(leaf: Any) -> Any:
            leaf = _shown(leaf)
            return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

        return self(map_nest(own, item))

    def parts(self) -> int:
        """Return into how many parts the rows of a batch are divided, in this process."""
        if not isinstance(self._sharding, Sharding) or self._spans_processes:
            return 1  # of several processes, each with rows of its own, JAX knows more
        rows = self._sharding.num_devices
        return int(rows // self._where(1).shard_shape((rows,))[0])

    def _put(self, arrays: list[Any]) -> list[Any]:
        where = [self._where(array.ndim) for array in arrays]
        self.put_bytes += sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))
        if self._spans_processes:
            make = jax.make_array_from_process_local_data
            return list(map(make, where, arrays))
        put: list[Any] = jax.device_put(arrays, where)
        return put

    def _where(self, axes: int) -> Any:
        sharding = self._sharding
        if isinstance(sharding, NamedSharding) and len(sharding.spec) > axes:
            return sharding.update(spec=PartitionSpec(*sharding.spec[:axes]))
        return sharding


def jax_pipeline(source: Source, fitted: Fitted, first: Any, *, sharding: Any) -> Pipeline:
    """Return a pipeline that puts batches on devices, or items in batch echoing."""
    place, config = Placement(sharding), fitted.config
    by_item = config.batch_size is None and not config.linked
    echo: Any = partial(item_echo, prepare=place.item if by_item else None, to_host=_to_host)
    if config.batch_size is not None:
        echo = partial(example_echo, held=config.prefetch + 1)
    echo = echo(source, fitted, first, ADAPTER)

    def use(emission: Any, epoch: int, number: int) -> Any:
        batch, *info = to_state(emission)
        # The info is a view of the batch's host memory, which goes back now.
        return of_state(place(batch), *(column.copy() for column in info))

    pipeline = Pipeline(echo, fitted, ADAPTER, sent_bytes=lambda: place.put_bytes)
    if not by_item:
        add_augmentation(pipeline)
        pipeline.add_link(
            "upload",
            use,
            to_state=lambda emission: list(map(_to_host, to_state(emission))),
            of_state=lambda batch, *info: of_state(place(batch), *info),
        )
    return pipeline


def _to_host(nest: Any) -> Any:
    def host_array(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array):
            return leaf
        if not leaf.is_fully_addressable:
            raise EchoError(
                "a state cannot hold arrays that span several processes: use "
                "state_dict(payload=False)"
            )
        return np.asarray(leaf)

    return map_nest(host_array, nest)


def _is_array(leaf: Any) -> bool:
    """Return True if a leaf goes to the devices."""
    return isinstance(leaf, jax.Array) or (isinstance(leaf, np.ndarray) and _has_dtype(leaf.dtype))


def _shown(leaf: Any) -> Any:
    """Return a tensor in host memory as an array, everything else as it is."""
    array = None if isinstance(leaf, jax.Array) else ADAPTER.as_array(leaf)
    refuse_masked(array)
    return leaf if array is None else array


@lru_cache
def _has_dtype(dtype: np.dtype[Any]) -> bool:
    """Return True if JAX has arrays of a dtype."""
    try:
        jax.eval_shape(lambda array: array, np.empty(0, dtype))
    except TypeError:
        return False
    return True
