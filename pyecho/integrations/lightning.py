"""Logs the effect of echoing with Lightning."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    try:
        from pytorch_lightning import Callback
    except ImportError as error:
        raise ImportError(
            "pyecho.integrations.lightning needs Lightning: pip install lightning"
        ) from error

from pyecho.items.nest import leaves_of
from pyecho.loader import EchoLoader
from pyecho.warn import warn

__all__ = ["EchoCallback"]


class EchoCallback(Callback):  # type: ignore[misc]
    """Logs ``stats().scalars()`` of each training loader that is a `pyecho.EchoLoader`.

    ::

        trainer = lightning.Trainer(callbacks=[EchoCallback()], log_every_n_steps=50)

    These are R, the effective factor, the share of fresh uses, the pool's fill, and the share of
    the time that the training waited, at each step that the trainer logs.

    Loaders go on where a checkpoint was saved also if ``configure_optimizers`` asks for
    ``trainer.estimated_stepping_batches``, with which Lightning 2.6 forgets their states.
    """

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Load states that were forgotten, and warn if there is nothing to log."""
        loop = trainer.fit_loop
        if getattr(loop, "_combined_loader_states_to_load", None):  # the loaders were made before
            loop._load_combined_loader_states()
            iter(loop._data_fetcher)
        if not _loaders_of(trainer):
            warn("EchoCallback logs nothing: no training loader is an EchoLoader of this process")

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Log, where the trainer does."""
        if trainer.global_step % trainer.log_every_n_steps == 0:
            loaders = _loaders_of(trainer)  # each time: the trainer may have made them anew
            for number, loader in enumerate(loaders):
                name = f"/{number}" if len(loaders) > 1 else ""
                scalars = loader.stats().scalars()
                module.log_dict({key + name: value for key, value in scalars.items()})


def _loaders_of(trainer: Any) -> list[EchoLoader]:
    """Return the training loaders that echo."""
    loaders = leaves_of(trainer.train_dataloader)
    return [loader for loader in loaders if isinstance(loader, EchoLoader)]
