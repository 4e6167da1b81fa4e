"""Emissions of a loader or buffer, and how to write all of them down."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch

import pyecho

Wrap = Callable[[Any], Iterable[Any]]


@dataclass(frozen=True)
class Loader:
    """A loader, and the epochs that it runs: their numbers, or None for the next one."""

    loader: type[pyecho.EchoLoader]
    source: Callable[[], Any]
    arguments: dict[str, Any]
    epochs: tuple[int | None, ...] = (None,)
    can_wrap = True

    def emissions(self, wrap: Wrap | None, arguments: dict[str, Any]) -> Iterator[Iterable[Any]]:
        """Yield each epoch, to be read before the next one is asked for."""
        source = self.source() if wrap is None else wrap(self.source())
        with self.loader(source, **{**self.arguments, **arguments}) as loader:
            for epoch in self.epochs:
                if epoch is not None:
                    loader.set_epoch(epoch)
                yield loader


@dataclass(frozen=True)
class Buffer:
    """An EchoBuffer, and a function that fills it, in a thread of its own."""

    spec: Any
    fill: Callable[[pyecho.EchoBuffer], None]
    arguments: dict[str, Any]
    can_wrap = False

    def emissions(self, wrap: Wrap | None, arguments: dict[str, Any]) -> Iterator[Iterable[Any]]:
        """Yield the one epoch that a buffer has."""
        if wrap is not None:
            raise ValueError("a buffer has no source to wrap")
        buffer = pyecho.EchoBuffer(self.spec, **{**self.arguments, **arguments})
        producer = threading.Thread(target=self._produce, args=[buffer], daemon=True)
        producer.start()
        try:
            yield buffer
        finally:
            buffer.stop()
            producer.join()

    def _produce(self, buffer: pyecho.EchoBuffer) -> None:
        try:
            self.fill(buffer)
            buffer.close()
        except BaseException as error:
            buffer.fail(error)


def plain(value: Any) -> Any:
    """Return a value whose repr says all: nest, types, dtypes, shapes and bytes."""
    kind = type(value).__name__
    if isinstance(value, dict):
        return kind, [(key, plain(child)) for key, child in value.items()]
    if isinstance(value, list | tuple):
        return kind, [plain(child) for child in value]
    if isinstance(value, torch.Tensor):
        flat = value.detach().resolve_conj().contiguous().reshape(-1)
        return kind, str(value.dtype), tuple(value.shape), hashed(flat.view(torch.uint8).numpy())
    if isinstance(value, np.ndarray | np.generic):
        return kind, repr(value.dtype), value.shape, hashed(value)
    if isinstance(value, set):
        return kind, sorted(value)
    return kind, repr(value)


def hashed(array: Any) -> str:
    """Return a digest of the bytes of an array."""
    return blake2b(array.tobytes(), digest_size=16).hexdigest()
