"""The `Trainer` of Hugging Face's transformers, with echoed training data."""

from __future__ import annotations

from collections.abc import Mapping
from operator import length_hint
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import transformers
    from transformers.trainer import TRAINER_STATE_NAME
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    raise ImportError(
        "pyecho.integrations.transformers needs transformers: pip install transformers"
    ) from error

import torch

from pyecho._core import ConfigError
from pyecho.integrations.accelerate import EchoLoader, Lists, load_state, save_state

if TYPE_CHECKING:
    from transformers import Trainer as _Trainer
else:
    _Trainer = object

__all__ = ["EchoTrainer", "EchoTrainerMixin"]


class EchoTrainerMixin(_Trainer):  # type: ignore[misc]
    """Echoes the training data of a `transformers.Trainer`, or of a class derived from it.

    ::

        class EchoTrainer(EchoTrainerMixin, Seq2SeqTrainer): ...

        trainer = EchoTrainer(model, args, train_dataset=dataset, echo={"factor": 3})
        trainer.train()  # resume_from_checkpoint=True goes on with the next batch

    Examples are echoed, and the trainer's collator makes and pads a batch of each
    `per_device_train_batch_size` of their uses. Schedules and epochs count the echoed batches. Each
    checkpoint holds the position of every process. Where the loss is logged, so are the
    ``stats().scalars()`` of the loader.

    Parameters
    ----------
    echo
        Options of `pyecho.integrations.accelerate.EchoLoader`, ``factor`` among them. With
        ``batch_size=None`` the collator's batches are echoed as they are. A dataset without a
        length needs `steps_per_epoch`, or ``TrainingArguments(max_steps=)``.

    Raises
    ------
    ConfigError
        In ``train()``, if batches hold groups of equal prompts, as those of TRL's ``GRPOTrainer``:
        echoes would tear them apart.
    """

    data_collator: Any

    def __init__(self, *args: Any, echo: Mapping[str, Any], **options: Any) -> None:
        super().__init__(*args, **options)
        self.echo = dict(echo)
        self.echo_loader: EchoLoader | None = None
        self._resumed_from: str | None = None
        self.add_callback(_SavesLoader(self))

    def get_train_dataloader(self) -> EchoLoader:
        """Return the loader of the training data, at the position of the checkpoint to resume."""
        options = {"batch_size": self._train_batch_size} | self.echo
        collator = self.data_collator
        if options["batch_size"] is not None:
            options.setdefault("collate_fn", collator)
            self.data_collator = Lists(collator)  # a trainer may read attributes of its collator
        try:
            source = super().get_train_dataloader()
        finally:
            self.data_collator = collator
        _refuse_groups(self, source)
        loader = _TrainerLoader(source, accelerator=self.accelerator, **options)
        if self._resumed_from is not None:
            file = _file_of(self, self._resumed_from)
            with _safe_globals():
                load_state(loader, file, "another trainer saved the checkpoint")
            if length_hint(loader, -1) < 0:
                loader.count_from(*_steps_of(self._resumed_from, self.args.max_steps))
        self.echo_loader = loader
        return loader

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **options: Any
    ) -> Any:
        """Train; see `transformers.Trainer.train`."""
        if resume_from_checkpoint is True:  # else train() finds it, and does not say which
            resume_from_checkpoint = get_last_checkpoint(self.args.output_dir) or True
        is_named = isinstance(resume_from_checkpoint, str | Path)
        self._resumed_from = str(resume_from_checkpoint) if is_named else None
        return super().train(resume_from_checkpoint, *args, **options)

    def log(self, logs: dict[str, float], *args: Any, **options: Any) -> None:
        """Log, and beside the loss what echoing does."""
        if "loss" in logs and self.echo_loader is not None:
            logs = logs | self.echo_loader.stats().scalars()
        super().log(logs, *args, **options)


class EchoTrainer(EchoTrainerMixin, transformers.Trainer):  # type: ignore[misc]
    """A `transformers.Trainer` that echoes its training data; see `EchoTrainerMixin`."""


class _TrainerLoader(EchoLoader):
    """Without a length, `max_steps` are one epoch for a trainer that resumes.

    So it skips all steps so far, and counts the pass that was under way as its epoch.
    """

    _steps: int | None = None
    _offset = 0

    def count_from(self, epoch: int, steps: int) -> None:
        """Take a trainer's epoch for the one that goes on, with so many steps before."""
        self._offset, self._steps = self._run.epochs.number - epoch, steps

    @property
    def taken_before(self) -> int:
        """Batches that the trainer skips."""
        return super().taken_before if self._steps is None else self._steps

    def set_epoch(self, epoch: int) -> None:
        """Choose the next epoch by the trainer's number."""
        super().set_epoch(epoch + self._offset)


class _SavesLoader(transformers.TrainerCallback):  # type: ignore[misc]
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        """Save where this process is."""
        file = _file_of(self._trainer, f"{args.output_dir}/checkpoint-{state.global_step}")
        file.parent.mkdir(parents=True, exist_ok=True)
        with _safe_globals():
            save_state(self._trainer.echo_loader, file)


def _refuse_groups(trainer: Any, source: Any) -> None:
    """Raise `ConfigError` if batches hold each example several times, as groups."""
    sampler = source
    while (inner := _sampler_in(sampler)) is not None:
        sampler = inner
    for of, name in ((sampler, "mini_repeat_count"), (trainer, "num_generations")):
        times = getattr(of, name, 1)
        if isinstance(times, int) and times > 1:
            raise ConfigError(
                f"{type(of).__name__} has each example {times} times in a batch ({name}), as GRPO, "
                "which compares the completions of one prompt; echoing draws uses of others in "
                "between. Train without EchoTrainerMixin, and echo what was generated "
                "(examples/rollouts.py)"
            )


def _sampler_in(loader: Any) -> Any:
    """Return the sampler in a loader or sampler, None if there is none."""
    sampler = getattr(loader, "batch_sampler", None)  # not `or`, which asks for its length
    return getattr(loader, "sampler", None) if sampler is None else sampler


def _safe_globals() -> Any:
    """Return a context in which files may hold what padding collators return."""
    return torch.serialization.safe_globals([transformers.BatchEncoding])


def _steps_of(checkpoint: str, max_steps: int) -> tuple[int, int]:
    """Return the epoch that a trainer resumes, and the steps in it, if epochs have `max_steps`."""
    file = Path(checkpoint, TRAINER_STATE_NAME)
    step = transformers.TrainerState.load_from_json(str(file)).global_step if file.exists() else 0
    return divmod(step, max(1, max_steps))


def _file_of(trainer: Any, checkpoint: str) -> Path:
    return Path(checkpoint, f"echo_loader_{trainer.args.process_index}.pt")
