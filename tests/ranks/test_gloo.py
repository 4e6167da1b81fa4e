"""Ranks that are processes, with ``torch.distributed`` over gloo."""

import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from ranks import run_ranks, start_ranks
from worlds import Member, World, run_world

import pyecho

torch = pytest.importorskip("torch")

from pyecho.torch.distributed import RunState  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

# Runs three epochs, as one rank of a job. Writes each batch, and after every third the state of
# the run with the number of global batches so far; goes on from there.
TRAIN = """
import json, os, pickle, sys, time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from pyecho.torch import EchoLoader
from pyecho.torch.distributed import RunState

folder, pause = sys.argv[1], float(sys.argv[2])
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
data = torch.arange(228)
sampler = DistributedSampler(data, ranks, rank, shuffle=False)
source = DataLoader(data, batch_size=4, sampler=sampler, num_workers=int(sys.argv[3]))
loader = EchoLoader(
    source, 2, batch_size=24 // ranks, unbatch=True, shuffle_buffer=96 // ranks, shards=12,
    group="auto",
)
progress = {"step": 0, "epoch": 0}
at = f"{folder}/../state"
if os.path.exists(at):
    with open(at, "rb") as file:
        saved = pickle.load(file)
    progress = saved["progress"]
    RunState(loader).load_state_dict(saved["data"])
with open(f"{folder}/{rank}", "a") as log:
    while progress["epoch"] < 3:
        for batch in loader:
            print(json.dumps([progress["step"], batch.tolist()]), file=log, flush=True)
            progress["step"] += 1
            dist.barrier()  # a step of training
            if progress["step"] % 3 == 0:
                state = {"progress": progress, "data": RunState(loader).state_dict()}
                if rank == 0:
                    with open(at + ".new", "wb") as file:
                        pickle.dump(state, file)
                    os.replace(at + ".new", at)
            time.sleep(pause)
        progress["epoch"] += 1
dist.destroy_process_group()
"""


def global_batches_of(folder, size):
    """Return the global batches that all ranks wrote, by step."""
    logs = []
    for rank in range(size):
        lines = (
            (folder / str(rank)).read_text().splitlines() if (folder / str(rank)).exists() else []
        )
        logs.append(dict(map(json.loads, lines)))
    found = {}
    for step in set.intersection(*(set(log) for log in logs)):
        whole = [0] * 24
        for rank, log in enumerate(logs):
            whole[rank::size] = log[step]
        found[step] = whole
    return found


def check_killed(tmp_path, seed):
    """Kill jobs of different numbers of ranks, each of which goes on where the last one was."""
    whole = tmp_path / "whole" / "job"
    whole.mkdir(parents=True)
    run_ranks(TRAIN, whole, 0, 0, ranks=1)
    expected = global_batches_of(whole, 1)
    assert sorted(expected) == list(range(3 * 19))

    draw = random.Random(seed)
    taken = {}
    sizes = (1, 2, 3, 1) if seed == 0 else draw.choices((1, 2, 3, 4), k=4)
    for number, size in enumerate(sizes):
        folder = tmp_path / "elastic" / str(number)
        folder.mkdir(parents=True)
        last = number == 3
        with start_ranks(TRAIN, folder, 0 if last else 0.03, 1, ranks=size) as job:
            if last:
                job.results()
            else:
                enough = 4 + 12 * number + draw.randrange(6)  # batches of the run
                log = folder / "0"
                while (
                    not log.exists()
                    or len(log.read_text().splitlines()) < 4
                    or (json.loads(log.read_text().splitlines()[-2])[0] < enough)
                ):
                    assert all(process.is_alive() for process in job.processes), number
                    time.sleep(0.01)
                draw.choice(job.processes).kill()
                time.sleep(0.1)  # torchrun kills the others a little later
        for step, batch in global_batches_of(folder, size).items():
            assert batch == expected[step], (number, step)
            taken[step] = batch
    assert taken == expected


def test_job_that_is_killed_goes_on_with_other_numbers_of_ranks(tmp_path):
    check_killed(tmp_path, 0)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(1, 13))
def test_fifty_jobs_that_are_killed_go_on(tmp_path, seed):
    check_killed(tmp_path, seed)


CHECKPOINT = """
import os, sys
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from pyecho.torch import EchoLoader
from pyecho.torch.distributed import RunState

folder, load = sys.argv[1], len(sys.argv) > 2
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
loader = EchoLoader(
    torch.arange(96)[rank::ranks], 2, batch_size=24 // ranks, shuffle_buffer=48 // ranks, shards=6,
    group="auto",
)
state = {"data": RunState(loader)}
if load:
    checkpoint.load(state, checkpoint_id=f"{folder}/saved")
    rest = [batch for batch in loader]
else:
    batches = iter(loader)
    next(batches), next(batches)
    checkpoint.save(state, checkpoint_id=f"{folder}/saved")
    rest = list(batches)
rows = torch.empty(len(rest), 24 // ranks, dtype=torch.int64)
for number, batch in enumerate(rest):
    rows[number] = batch
found = [torch.empty_like(rows) for _ in range(ranks)]
dist.all_gather(found, rows)
if rank == 0:
    print(torch.stack(found, 2).flatten(1).tolist())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("factor", [2, pyecho.Adaptive(4)])
def test_state_of_a_run_on_one_process(factor):
    def make():
        return pyecho.EchoLoader(np.arange(60), factor, batch_size=10, shuffle_buffer=20)

    loader, resumed = make(), make()
    batches = iter(loader)
    taken = [next(batches).tolist(), next(batches).tolist()]
    RunState(resumed).load_state_dict(RunState(loader).state_dict())
    rest = [batch.tolist() for batch in resumed]
    if factor == 2:
        assert rest == [batch.tolist() for batch in batches]
    assert {row for batch in [*taken, *rest] for row in batch} == set(range(60))


def test_distributed_checkpoints(tmp_path):
    saved = run_ranks(CHECKPOINT, tmp_path, ranks=2)[0]
    assert len(saved) == 6
    for ranks in (2, 3):
        assert run_ranks(CHECKPOINT, tmp_path, "load", ranks=ranks)[0] == saved


WHOLE = """
import warnings
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
from pyecho import EchoError
from pyecho.torch import EchoLoader

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # other orders, so that the first items do not tell
source = DataLoader(torch.arange(8).float(), batch_size=2, shuffle=True)
for group in (None, "auto", dist.group.WORLD):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(list(EchoLoader(source, 2, group=group))) == 8
    assert ["whole dataset" in str(each.message) for each in caught] == [True], caught
    assert caught[0].filename == __file__, caught[0].filename
del group  # or it would outlive destroy_process_group()
try:
    next(iter(EchoLoader([1.0] * (dist.get_rank() == 0), 2, group="auto")))
except EchoError as error:
    assert "rank 1" in str(error)
else:
    raise AssertionError

# Torch's own group and another one end with destroy_process_group(), whatever loaders there are.
loaders = [
    EchoLoader(source, 2, group=group) for group in (dist.group.WORLD, dist.new_group([0, 1]))
]
dist.destroy_process_group()
for loader in loaders:
    try:
        next(iter(loader))
    except EchoError as error:
        assert "the process group of the loader is gone" in str(error)
    else:
        raise AssertionError
"""


def test_warnings_and_errors_of_groups():
    run_ranks(WHOLE)


def test_groups_of_other_kinds():
    from pyecho import ConfigError
    from pyecho.torch import EchoLoader

    def rank_does(member):
        loader = EchoLoader([torch.tensor(member.rank)] * (1 + member.rank), 2, group=member)
        return list(map(int, loader))

    assert run_world(2, rank_does)[0] == [[0] * 4, [1] * 4]
    assert list(EchoLoader([torch.tensor(1)], 2, group="auto")) == [torch.tensor(1)] * 2
    with pytest.raises(ConfigError, match="group must be 'auto'"):
        EchoLoader([torch.tensor(1)], 2, group=3)
    for rank, size in ((5, 2), (0, 0), ("0", 1)):
        with pytest.raises(ConfigError, match="a rank below it, got rank"):
            EchoLoader([torch.tensor(1)], 2, group=Member(World(size), rank))


TRAIN_DDP = """
import os, runpy, sys

os.chdir(sys.argv[2])
runpy.run_path(sys.argv[1])["main"](epochs=int(sys.argv[3]))
"""


@pytest.mark.stress
def test_run_state_trains_the_same_model_with_other_numbers_of_ranks(tmp_path):
    models = []
    for numbers in ((2,), (1, 3)):
        folder = tmp_path / "".join(map(str, numbers))
        folder.mkdir()
        for ranks in numbers:
            epochs = 1 if ranks == 1 else 2
            run_ranks(
                TRAIN_DDP, ROOT / "examples/frameworks/train_ddp.py", folder, epochs, ranks=ranks
            )
        models.append(torch.load(folder / "model.pt"))
    torch.testing.assert_close(*models)
