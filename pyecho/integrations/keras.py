"""A loader as data for Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyecho._core import ConfigError
from pyecho.integrations.tf import Iterations


def keras_data(loader: Any) -> Any:
    """Return what ``Model.fit`` takes for a loader, which must know its length."""
    try:
        import keras
    except ImportError as error:
        raise ImportError("to_keras() needs Keras 3: pip install keras") from error
    try:
        batches = len(loader)
    except TypeError as error:
        raise ConfigError(f"Keras asks for the number of batches, but {error}") from None
    if keras.backend.backend() == "tensorflow":
        # It reads a PyDataset ahead in a thread, and drops what that has read when it begins.
        return loader.to_tf_dataset()

    class EchoDataset(keras.utils.PyDataset):  # type: ignore[misc]
        """The batches of a loader. Keras asks by number; they come in the loader's order."""

        def __init__(self) -> None:
            super().__init__()
            self._iterations = Iterations(loader)
            self._batches: Iterator[Any] | None = None
            self._asked: set[int] = set()

        @property
        def num_batches(self) -> int:
            """Keras asks for this before it begins another iteration."""
            self._batches = None
            return batches

        def __len__(self) -> int:
            return batches

        def __getitem__(self, index: int) -> Any:
            if self._batches is None or index in self._asked:
                self._batches = iter(self._iterations)
                self._asked.clear()
            self._asked.add(index)
            return next(self._batches)

    return EchoDataset()
