"""Ray Train: rows out of Ray's object store, on as many workers as the cluster has room for.

    python train_ray.py

After a failure, or when workers come or leave, training goes on from the last checkpoint with the
next batch. One worker or two have the same global batches.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import ray
import ray.train
import torch
from ray.train import DataConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from pyecho.torch import EchoLoader
from pyecho.torch.distributed import RunState

ROWS = 240


class RowsOfWorker:
    """Every n-th row of a dataset, with nothing copied. Its length makes the batches known."""

    def __init__(self, dataset, rank, ranks):
        self.dataset, self.rank, self.ranks = dataset, rank, ranks

    def __len__(self):
        return len(range(self.rank, ROWS, self.ranks))

    def __iter__(self):
        before = 0  # rows of earlier blocks
        for block in self.dataset.iter_batches(batch_size=None, batch_format="numpy"):
            rows = len(block["label"])
            for row in range((self.rank - before) % self.ranks, rows, self.ranks):
                yield {name: column[row] for name, column in block.items()}
            before += rows


def train(config):
    context = ray.train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(0)
    rows = RowsOfWorker(ray.train.get_dataset_shard("train"), rank, ranks)
    loader = EchoLoader(
        rows,
        factor=2,
        batch_size=24 // ranks,
        shuffle_buffer=96 // ranks,
        shards=2,
        group="auto",
    )
    model = prepare_model(torch.nn.Linear(8, 3))
    plain = getattr(model, "module", model)  # one worker has no DistributedDataParallel
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run, epoch, step = RunState(loader), 0, 0
    saved = ray.train.get_checkpoint()
    if saved is not None:
        with saved.as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"))
        plain.load_state_dict(state["model"])
        run.load_state_dict(state["run"])
        epoch, step = state["epoch"], state["step"]

    while epoch < config["epochs"]:
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["x"]), batch["label"]).backward()
            optimizer.step()
            step += 1
            if step % 6 == 0:
                state = {"model": plain.state_dict(), "epoch": epoch, "step": step}
                report(state | {"run": run.state_dict()}, rank)  # on all workers
            if step == config.get("fails_at") and saved is None:
                raise RuntimeError("a worker fails")
        epoch += 1
    report(
        {"model": plain.state_dict(), "epoch": epoch, "step": step, "run": run.state_dict()}, rank
    )


def report(state, rank):
    metrics = {"step": state["step"]}
    if rank > 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.save(state, Path(folder, "state.pt"))
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def main(folder="ray-training", workers=(1, 2), **config):
    """Train, and return the state that was saved last."""
    random = np.random.default_rng(0)
    x, label = random.standard_normal((ROWS, 8), np.float32), random.integers(3, size=ROWS)
    rows = [{"x": x[i], "label": label[i]} for i in range(ROWS)]
    options = ray.data.ExecutionOptions(preserve_order=True)  # to read the same rows again
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": 2} | config,
        datasets={"train": ray.data.from_items(rows, override_num_blocks=4).materialize()},
        # Each worker picks its rows. docs/ecosystem.md says what else there is.
        dataset_config=DataConfig(datasets_to_split=[], execution_options=options),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            storage_path=str(Path(folder).resolve()), failure_config=FailureConfig(max_failures=3)
        ),
    )
    with trainer.fit().checkpoint.as_directory() as folder:
        return torch.load(Path(folder, "state.pt"))


if __name__ == "__main__":
    main(*sys.argv[1:])
