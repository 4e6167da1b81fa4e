"""Lightning: lengths, schedules and checkpoints. Needs requirements/lightning.txt."""

import csv
import runpy
from collections import Counter
from pathlib import Path

import pytest
from ranks import run_ranks

torch = pytest.importorskip("torch")
try:
    import lightning.pytorch as lightning
    from lightning.pytorch import callbacks, loggers
except ImportError:
    lightning = pytest.importorskip("pytorch_lightning")
    from pytorch_lightning import callbacks, loggers

from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from pyecho.integrations.lightning import EchoCallback
from pyecho.torch import EchoLoader

pytestmark = pytest.mark.filterwarnings("default")

EXAMPLE = Path(__file__).parents[2] / "examples/frameworks/train_lightning.py"
EXAMPLES, BATCH, EPOCHS = 24, 4, 3
STEPS = EXAMPLES * 2 // BATCH  # of an epoch


class Model(lightning.LightningModule):
    """A parameter, and the examples of every step."""

    def __init__(self, schedule=False):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.schedule = schedule
        self.seen, self.rates, self.validated = [], [], []

    def training_step(self, batch):
        (numbers,) = batch
        self.seen.append(numbers.tolist())
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return (self.weight - numbers.float().mean()) ** 2

    def validation_step(self, batch, number):
        if number == 0:
            self.validated.append(len(self.seen))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        if not self.schedule:
            return optimizer
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def make_source():
    dataset = TensorDataset(torch.arange(EXAMPLES))
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)  # its order is the epoch's
    return DataLoader(dataset, batch_size=6, sampler=sampler)


def make_loader(**options):
    return EchoLoader(make_source(), 2, batch_size=BATCH, unbatch=True, **options)


def make_trainer(folder, **options):
    options = {"max_epochs": EPOCHS, "enable_checkpointing": False} | options
    return lightning.Trainer(
        default_root_dir=folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def trained(folder, loader, checkpoint=None, schedule=False, validation=None, **options):
    model = Model(schedule)
    make_trainer(folder, **options).fit(model, loader, validation, ckpt_path=checkpoint)
    return model


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder of checkpoints after all steps and epochs, and the batches of all of them."""
    folder = tmp_path_factory.mktemp("checkpoints")
    steps = callbacks.ModelCheckpoint(
        folder, "{step}", save_top_k=-1, every_n_train_steps=1, save_on_train_epoch_end=False
    )
    ends = callbacks.ModelCheckpoint(folder, "end-{step}", save_top_k=-1, every_n_epochs=1)
    model = trained(folder, make_loader(), enable_checkpointing=True, callbacks=[steps, ends])
    return folder, model.seen


@pytest.mark.parametrize("step", range(1, STEPS * EPOCHS))
def test_checkpoint_after_any_step_goes_on_with_the_next_batch(whole, tmp_path, step):
    folder, seen = whole
    model = trained(tmp_path, make_loader(), folder / f"step={step}.ckpt")
    assert model.seen == seen[step:]


@pytest.mark.parametrize("epoch", range(1, EPOCHS))
def test_checkpoint_at_the_end_of_an_epoch_goes_on_with_the_next_one(whole, tmp_path, epoch):
    folder, seen = whole
    step = epoch * STEPS
    model = trained(tmp_path, make_loader(), folder / f"end-step={step}.ckpt")
    assert model.seen == seen[step:]


@pytest.mark.parametrize("limit", [5, 0.5])
def test_limit_train_batches_ends_epochs_early_and_resumes(tmp_path, limit):
    options = {"limit_train_batches": limit}
    steps = 5 if limit == 5 else STEPS // 2
    keep = callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=1)
    seen = trained(
        tmp_path, make_loader(), enable_checkpointing=True, callbacks=[keep], **options
    ).seen
    assert len(seen) == steps * EPOCHS
    assert seen[steps] != seen[0]
    for step in (1, steps - 1, steps, steps + 1):
        model = trained(tmp_path, make_loader(), tmp_path / f"step={step}.ckpt", **options)
        assert model.seen == seen[step:]


def test_interval_of_validation_is_a_share_of_the_length(tmp_path):
    validation = DataLoader(TensorDataset(torch.arange(3)))
    model = trained(
        tmp_path,
        make_loader(),
        validation=validation,
        val_check_interval=0.25,
        num_sanity_val_steps=0,
        max_epochs=2,
    )
    assert model.validated == list(range(STEPS // 4, 2 * STEPS + 1, STEPS // 4))


def test_one_cycle_ends_with_the_last_step(tmp_path):
    model = trained(tmp_path, make_loader(), schedule=True)
    assert len(model.rates) == STEPS * EPOCHS
    assert max(model.rates) == pytest.approx(1.0, rel=0.05)
    assert model.rates[-1] < 1e-3


@pytest.mark.parametrize("options", [{"epochs": EPOCHS}, {"steps_per_epoch": 7}])
def test_epochs_that_flow_have_their_steps_and_resume(tmp_path, options):
    keep = callbacks.ModelCheckpoint(tmp_path, "{step}", save_top_k=-1, every_n_train_steps=1)
    seen = trained(
        tmp_path, make_loader(**options), enable_checkpointing=True, callbacks=[keep]
    ).seen
    steps = options.get("steps_per_epoch", STEPS)
    assert len(seen) == steps * EPOCHS
    for step in (steps - 1, steps, steps + 1, 2 * steps):
        model = trained(tmp_path, make_loader(**options), tmp_path / f"step={step}.ckpt")
        assert model.seen == seen[step:], step


def test_loader_without_a_length(tmp_path):
    model = trained(tmp_path, make_loader(unique_in_batch=True), max_epochs=2)
    uses = Counter(n for batch in model.seen for n in batch)
    assert uses == dict.fromkeys(range(EXAMPLES), 4)


def test_callback_finds_each_loader(tmp_path):
    class Both(Model):
        def training_step(self, batch):
            return sum(super(Both, self).training_step(part) for part in batch.values())

    options = {"max_epochs": 1, "callbacks": [EchoCallback()], "log_every_n_steps": 1}
    trainer = make_trainer(tmp_path, **options)
    trainer.fit(Both(), {name: make_loader() for name in "ab"})
    assert {"echo/R/0", "echo/R/1"} < set(trainer.logged_metrics)
    with pytest.warns(UserWarning, match="EchoCallback logs nothing"):
        trained(tmp_path, make_source(), max_epochs=1, callbacks=[EchoCallback()])


def test_callback_logs_after_a_checkpoint_in_the_middle_of_an_epoch(whole, tmp_path):
    options = {"callbacks": [EchoCallback()], "log_every_n_steps": 1}
    trainer = make_trainer(tmp_path, **options)
    trainer.fit(Model(), make_loader(), ckpt_path=whole[0] / "step=5.ckpt")
    assert "echo/R" in trainer.logged_metrics


def test_echoed_loader_can_validate(tmp_path):
    validation = EchoLoader(torch.arange(6), 1, batch_size=2)
    model = trained(tmp_path, make_loader(), validation=validation, max_epochs=2)
    assert model.validated == [0, STEPS, 2 * STEPS]  # the first before the training


@pytest.fixture
def example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(EXAMPLE))["main"]


def test_example_logs_what_echoing_does(tmp_path, example):
    trainer = example(loggers.CSVLogger(tmp_path))
    assert trainer.global_step == 2 * 24
    (logged,) = tmp_path.rglob("metrics.csv")
    rows = list(csv.DictReader(logged.open()))
    assert {row["step"] for row in rows} == {str(step) for step in range(3, 48, 4)}
    assert float(rows[-1]["echo/effective_factor"]) == 2
    assert float(rows[-1]["echo/fresh_share"]) == 0.5
    assert {"echo/R", "echo/occupancy", "echo/wait_share"} < set(rows[-1])


PROGRAM = """
import json, runpy, sys
from pathlib import Path
module = runpy.run_path(sys.argv[1], run_name="tests")
torch, lightning, DataLoader = (module[name] for name in ("torch", "lightning", "DataLoader"))

def train(checkpoint=None, **options):
    numbers = torch.utils.data.TensorDataset(torch.arange(48))
    sampler = module["DistributedSampler"](numbers)
    source = DataLoader(numbers, batch_size=6, sampler=sampler)
    loader = module["EchoLoader"](source, 2, batch_size=4, unbatch=True)
    model = module["Model"]()
    trainer = module["make_trainer"](
        sys.argv[2], devices=2, strategy="ddp", use_distributed_sampler=False, **options
    )
    trainer.fit(model, loader, ckpt_path=checkpoint)
    return model.seen

folder = Path(sys.argv[2])
keep = module["callbacks"].ModelCheckpoint(
    folder, "{step}", save_top_k=-1, every_n_train_steps=17, save_on_train_epoch_end=False
)
torch.distributed.init_process_group("gloo")
whole = train(enable_checkpointing=True, callbacks=[keep])
rest = train(folder / "step=17.ckpt")
print(json.dumps({"whole": whole, "rest": rest}))
"""


def test_processes_resume_from_one_checkpoint(tmp_path):
    ranks = run_ranks(PROGRAM, __file__, tmp_path)
    for rank in ranks:
        assert len(rank["whole"]) == STEPS * EPOCHS
        assert rank["rest"] == rank["whole"][17:]
    numbers = [{n for batch in rank["whole"][:STEPS] for n in batch} for rank in ranks]
    assert numbers[0] | numbers[1] == set(range(48))
    assert not numbers[0] & numbers[1]
