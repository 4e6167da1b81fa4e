"""The source of a loader, as its options ask for it."""

from __future__ import annotations

from typing import Any

from pyecho.config import Config
from pyecho.source import Source, source_of


def chosen(given: Any, config: Config) -> Source:
    """Return the source that reads what the user gave: in its order, or by index, or flattened."""
    source = source_of(
        given,
        batch_size=config.batch_size,
        unbatch=config.splits_batches,
        collated=config.collate_fn is not None,
        ragged=config.fields is not None,
    )
    if config.by_index:
        from pyecho.source.picked import picked

        source = picked(source, config)
    if config.unbatch == "lists":
        from pyecho.source.flattened import flattened

        source = flattened(source)
    return source
