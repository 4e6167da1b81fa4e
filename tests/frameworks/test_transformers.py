"""Hugging Face's Trainer: padding, accumulation, checkpoints, logs. See requirements/."""

import copy
import json
import pickle
import runpy
import shutil
from pathlib import Path

import pytest
import torch
from ranks import run_ranks
from torch.utils.data import IterableDataset

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import TrainingArguments

import pyecho
from pyecho.integrations.accelerate import Lists
from pyecho.integrations.transformers import EchoTrainer, EchoTrainerMixin
from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("default")

EXAMPLE = Path(__file__).parents[2] / "examples/frameworks/train_transformers.py"
EXAMPLES, BATCH, EPOCHS = 26, 4, 2
STEPS = EXAMPLES * 2 // BATCH


class Model(torch.nn.Module):
    """A parameter, and the examples of every batch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen = []

    def forward(self, ids, labels):
        if self.training:
            self.seen.append(labels.tolist())
        assert ids.shape[1] == max(1 + label % 5 for label in labels.tolist())
        return {"loss": (self.weight - labels.float().mean()) ** 2}


def padded(examples):
    ids = [torch.tensor(example["ids"]) for example in examples]
    return transformers.BatchEncoding(
        {
            "ids": torch.nn.utils.rnn.pad_sequence(ids, batch_first=True),
            "labels": torch.tensor([example["labels"] for example in examples]),
        }
    )


DATASET = [{"ids": [1] * (1 + n % 5), "labels": n} for n in range(EXAMPLES)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DATASET)


def make_trainer(folder, echo=None, dataset=DATASET, **options):
    options = {"num_train_epochs": EPOCHS, "save_strategy": "no"} | options
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    return EchoTrainer(
        Model(),
        arguments,
        train_dataset=dataset,
        data_collator=padded,
        echo={"factor": 2} | (echo or {}),
    )


@pytest.mark.parametrize(
    "echo", [{}, {"epochs": 2}, {"steps_per_epoch": STEPS}, {"factor": pyecho.Adaptive(1, min=1)}]
)
@pytest.mark.parametrize("accumulated", [1, 3])
def test_trainer_goes_on_with_the_next_batch_of_any_checkpoint(tmp_path, echo, accumulated):
    if "factor" in echo:
        echo = echo | {"steps_per_epoch": 6}
    options = {"gradient_accumulation_steps": accumulated}
    trainer = make_trainer(tmp_path, echo, save_strategy="steps", save_steps=1, **options)
    trainer.train()
    seen, states = trainer.model.seen, trainer.state.log_history
    steps = echo.get("steps_per_epoch", STEPS)
    assert len(seen) == steps * EPOCHS
    updates = -(-steps // accumulated)
    for update in {1, updates - 1, updates, updates + 1, 2 * updates - 1}:
        resumed = make_trainer(tmp_path, echo, **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{update}"))
        epoch, within = divmod(update, updates)
        assert resumed.model.seen == seen[epoch * steps + within * accumulated :], update
        assert resumed.state.epoch == trainer.state.epoch
        assert resumed.state.global_step == trainer.state.global_step
        assert resumed.model.weight == trainer.model.weight
    assert states


@pytest.mark.parametrize("dispatch", [None, False])
def test_stream_goes_on_with_the_next_batch_in_any_pass(tmp_path, dispatch):
    options = {"max_steps": 3 * STEPS, "accelerator_config": {"dispatch_batches": dispatch}}
    saving = {"save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(tmp_path, dataset=Stream(), **saving, **options)
    whole.train()
    seen = whole.model.seen
    for step in (1, STEPS, STEPS + 1, 2 * STEPS, 2 * STEPS + 3):
        resumed = make_trainer(tmp_path / "again", dataset=Stream(), **saving, **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
        assert resumed.model.seen == seen[step:], step
        step = min(step + STEPS, 3 * STEPS - 1)  # the resumed training resumes as well
        again = make_trainer(tmp_path / "again", dataset=Stream(), **options)
        again.train(resume_from_checkpoint=str(tmp_path / f"again/checkpoint-{step}"))
        assert again.model.seen == seen[step:], step
        shutil.rmtree(tmp_path / "again")


def test_checkpoint_of_another_trainer_is_refused(tmp_path):
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=4, max_steps=4)
    trainer.train()
    (tmp_path / "checkpoint-4/echo_loader_0.pt").unlink()
    with pytest.raises(pyecho.CheckpointError, match=r"echo_loader_0\.pt is missing"):
        make_trainer(tmp_path).train(resume_from_checkpoint=True)


def test_batches_of_the_collator_may_be_echoed_as_they_are(tmp_path):
    trainer = make_trainer(tmp_path, {"batch_size": None})
    trainer.train()
    batches = list(map(tuple, trainer.model.seen))
    assert len(batches) == 2 * EPOCHS * -(-EXAMPLES // BATCH)
    assert batches[::2] == batches[1::2]


def test_stream_is_read_by_every_process(tmp_path):
    trainer = make_trainer(tmp_path, dataset=Stream(), max_steps=20)
    trainer.train()
    assert len(trainer.model.seen) == 20
    assert trainer.model.seen[0] != trainer.model.seen[1]


class RepeatSampler(torch.utils.data.Sampler):
    """Stands for TRL's."""

    def __init__(self, mini_repeat_count):
        self.mini_repeat_count = mini_repeat_count

    def __iter__(self):
        return (n for n in range(EXAMPLES) for _ in range(self.mini_repeat_count))

    def __len__(self):
        return EXAMPLES * self.mini_repeat_count


@pytest.mark.parametrize(("by_sampler", "by_trainer"), [(2, 1), (1, 2), (1, 1)])
def test_trainer_that_compares_completions_of_a_prompt_is_refused(by_sampler, by_trainer, tmp_path):
    class GroupedTrainer(EchoTrainer):
        num_generations = by_trainer

        def _get_train_sampler(self, *_):
            return RepeatSampler(by_sampler)

    arguments = TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=BATCH,
        max_steps=3,
        report_to="none",
        use_cpu=True,
    )
    trainer = GroupedTrainer(
        Model(), arguments, train_dataset=DATASET, data_collator=padded, echo={"factor": 2}
    )
    if by_sampler == by_trainer == 1:
        trainer.train()
        return
    with pytest.raises(pyecho.ConfigError, match=r"2 times.*as GRPO.*Train without EchoTrainerMix"):
        trainer.train()


def test_evaluation_is_not_echoed(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=2)
    trainer.train()
    trainer.model.eval()
    assert len(list(trainer.get_eval_dataloader(DATASET))) == 4
    assert trainer.data_collator is padded


class Padded:
    """A collator with attributes, as that of sentence-transformers."""

    valid_label_columns = ("label", "score")

    def __call__(self, examples):
        return padded(examples)


class ReadingTrainer(transformers.Trainer):
    """Reads attributes of its collator when it makes the loader."""

    def get_train_dataloader(self):
        self.read = self.data_collator.valid_label_columns
        assert not hasattr(self.data_collator, "no such attribute")
        return super().get_train_dataloader()


def test_trainer_may_read_attributes_of_its_collator(tmp_path):
    class Trainer(EchoTrainerMixin, ReadingTrainer):
        pass

    arguments = TrainingArguments(str(tmp_path), max_steps=3, report_to="none", use_cpu=True)
    options = {"train_dataset": DATASET, "data_collator": Padded(), "echo": {"factor": 2}}
    trainer = Trainer(Model(), arguments, **options)
    trainer.train()
    assert trainer.read == Padded.valid_label_columns
    assert isinstance(trainer.data_collator, Padded)
    assert [len(labels) for labels in trainer.model.seen] == [8, 8, 8]


def test_lists_are_copied_and_pickled_with_their_collator():
    lists = Lists(Padded())
    for again in (copy.copy(lists), pickle.loads(pickle.dumps(lists))):
        assert again([1, 2]) == [1, 2]
        assert again.valid_label_columns == Padded.valid_label_columns


def test_unbatch_makes_batches_of_the_kind_that_a_collator_makes():
    source = [padded([{"ids": [n, n], "labels": n}, {"ids": [n], "labels": n}]) for n in range(4)]
    loader = EchoLoader(source, 2, batch_size=4, unbatch=True)
    assert len(loader) == 4
    for batch in loader:
        assert isinstance(batch, transformers.BatchEncoding)
        assert batch["ids"].shape == (4, 2)


def test_example_logs_what_echoing_does_and_resumes(tmp_path):
    example = runpy.run_path(str(EXAMPLE))
    trainer = example["main"](str(tmp_path))
    assert trainer.state.global_step == 2 * 16
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(logged) == 8
    names = {"echo/R", "echo/effective_factor", "echo/fresh_share", "echo/occupancy"}
    assert names | {"echo/wait_share"} < set(logged[-1])
    json.dumps(logged)
    resumed = example["make_trainer"](str(tmp_path), max_steps=34)
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 34


PROGRAM = """
import json, sys, runpy
module = runpy.run_path(sys.argv[1], run_name="tests")
def train(checkpoint=None, **options):
    trainer = module["make_trainer"](sys.argv[2], gradient_accumulation_steps=2, **options)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.model.seen
whole = train(save_strategy="steps", save_steps=5)
print(json.dumps({"whole": whole, "rest": train(sys.argv[2] + "/checkpoint-5")}))
"""


def test_processes_train_on_their_shares_and_resume(tmp_path):
    ranks = run_ranks(PROGRAM, __file__, tmp_path)
    # 26 examples make 7 batches, and 8 for two processes; echoed, 8 for each one and epoch.
    for rank in ranks:
        assert len(rank["whole"]) == 8 * EPOCHS
        assert rank["rest"] == rank["whole"][10:]
    uses = [sum(map(tuple, rank["whole"][:8]), ()) for rank in ranks]
    assert {n for rank in uses for n in rank} == set(range(EXAMPLES))
    assert len(set(uses[0]) & set(uses[1])) <= 6
