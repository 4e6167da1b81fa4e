"""Accelerate: shards, devices, gradient accumulation, checkpoints. See requirements/."""

from collections import Counter
from itertools import chain

import pytest
import torch
from interrupt_points import nothing_is_lost
from ranks import run_ranks
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

pytest.importorskip("accelerate")

from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DataLoaderConfiguration

import pyecho
import pyecho.torch
from pyecho.integrations.accelerate import EchoLoader, _Epoch

pytestmark = pytest.mark.filterwarnings("default")


class Numbers(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(40))


@pytest.fixture
def make_accelerator():
    """Return what makes an Accelerator, with nothing left of the last one."""

    def make(steps=1, **options):
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        config = DataLoaderConfiguration(**{"use_seedable_sampler": True} | options)
        return Accelerator(cpu=True, gradient_accumulation_steps=steps, dataloader_config=config)

    yield make
    make()


def make_loader(accelerator, *, examples=50, **options):
    torch.manual_seed(0)
    source = DataLoader(TensorDataset(torch.arange(examples)), batch_size=6, shuffle=True)
    options = {"batch_size": 4, "unbatch": True} | options
    source = accelerator.prepare_data_loader(source)
    return EchoLoader(source, 2, accelerator=accelerator, **options)


def synchronised(accelerator, loader):
    """Return after which batches of an epoch gradients are synchronised."""
    model = torch.nn.Linear(1, 1)
    found = []
    for _ in loader:
        with accelerator.accumulate(model):
            found.append(accelerator.sync_gradients)
    return found


@pytest.mark.parametrize("options", [{}, {"epochs": 3}, {"steps_per_epoch": 10}, {"threads": 0}])
def test_gradients_accumulate_up_to_the_last_batch_that_is_consumed(make_accelerator, options):
    accelerator = make_accelerator(steps=4)
    loader = make_loader(accelerator, prefetch=8, **options)
    for _ in range(3):
        steps = len(loader)
        expected = [(step + 1) % 4 == 0 or step + 1 == steps for step in range(steps)]
        assert synchronised(accelerator, loader) == expected
        assert not accelerator.gradient_state.in_dataloader


def test_end_of_the_source_is_known_after_a_state(make_accelerator):
    accelerator = make_accelerator(steps=4)
    loader = make_loader(accelerator)
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    assert accelerator.gradient_state.in_dataloader
    state = loader.state_dict()
    del batches
    assert not accelerator.gradient_state.in_dataloader
    resumed = make_loader(make_accelerator(steps=4))
    resumed.load_state_dict(state)
    found = synchronised(accelerator, resumed)
    assert found == [(step + 1) % 4 == 0 or step == 14 for step in range(15)]


def test_loader_without_a_length_cannot_end_an_accumulation(make_accelerator):
    with pytest.raises(pyecho.ConfigError, match="steps_per_epoch"):
        make_loader(make_accelerator(steps=4), unique_in_batch=True)
    make_loader(make_accelerator(), unique_in_batch=True)


@pytest.mark.parametrize("keeps_other", [False, True])
@pytest.mark.parametrize("made_anew", [False, True])
def test_files_of_loaders_have_the_order_in_which_these_were_made(
    make_accelerator, tmp_path, keeps_other, made_anew
):
    accelerator = make_accelerator()
    other = make_loader(accelerator, examples=30)
    loader = make_loader(accelerator)
    accelerator.save_state(tmp_path)
    if made_anew:
        loader = make_loader(accelerator)
    del other
    next(batches := iter(loader))
    accelerator.save_state(tmp_path)  # to the same folder
    rest = [batch[0].tolist() for batch in batches]

    accelerator = make_accelerator()
    other = make_loader(accelerator, examples=30) if keeps_other or not made_anew else None
    loader = make_loader(accelerator)
    if not keeps_other:
        del other
        accelerator.load_state(tmp_path)
        assert [batch[0].tolist() for batch in loader] == rest
        return
    with pytest.raises(pyecho.CheckpointError, match="echo_loader_0_0"):
        accelerator.load_state(tmp_path)


def test_state_of_fewer_processes_is_refused(make_accelerator, tmp_path):
    accelerator = make_accelerator()
    accelerator.save_state(tmp_path)
    loader = make_loader(accelerator)
    with pytest.raises(pyecho.CheckpointError, match="echo_loader_0_0"):
        accelerator.load_state(tmp_path)
    assert len(list(loader)) == 25


@pytest.mark.parametrize("with_state", [False, True])
def test_accelerates_own_skip_first_batches_works(make_accelerator, with_state):
    accelerator = make_accelerator(steps=4)
    loader = make_loader(accelerator)
    batches = iter(loader)
    for _ in range(6):
        next(batches)
    state = loader.state_dict()
    rest = [batch[0].tolist() for batch in batches]
    loader = make_loader(accelerator)
    if with_state:
        loader.load_state_dict(state)
    skipped = accelerator.skip_first_batches(loader, 6)
    found, ends = [], []
    for (batch,) in skipped:
        found.append(batch.tolist())
        ends.append(accelerator.gradient_state.end_of_dataloader)
    assert found == rest
    assert ends == [False] * (len(rest) - 1) + [True]


def test_epoch_survives_an_interrupt_at_each_point(make_accelerator):
    accelerator = make_accelerator(steps=4)
    loader = make_loader(accelerator, examples=12)
    told = []

    def values(batch):
        told.append(accelerator.gradient_state.end_of_dataloader)
        return batch[0].tolist()

    def make():
        loader.set_epoch(0)
        return map(values, iter(loader))

    expected = list(make())
    methods = (_Epoch.__next__, _Epoch._end)
    assert nothing_is_lost(make, expected, *methods) > 10
    assert told == ([False] * 5 + [True]) * (len(told) // 6)
    assert not accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize("dispatch", [None, True, False])
def test_stream_that_the_first_process_reads_is_echoed_by_one_and_refused_by_several(
    make_accelerator, dispatch
):
    accelerator = make_accelerator(dispatch_batches=dispatch)
    source = accelerator.prepare_data_loader(DataLoader(Numbers(), batch_size=4))
    assert len(list(EchoLoader(source, 2, accelerator=accelerator))) == 20
    PartialState().num_processes = 2
    if dispatch is False:
        assert len(list(EchoLoader(source, 2, accelerator=accelerator))) == 20
        return
    with pytest.raises(pyecho.ConfigError, match="dispatch_batches=False"):
        EchoLoader(source, 2, accelerator=accelerator)


@pytest.mark.parametrize("dispatch", [False, True])
def test_loader_for_pytorch_names_the_one_for_accelerate(make_accelerator, dispatch):
    accelerator = make_accelerator(dispatch_batches=dispatch)
    source = accelerator.prepare_data_loader(DataLoader(TensorDataset(torch.arange(8))))
    with pytest.raises(pyecho.ConfigError, match=r"pyecho\.integrations\.accelerate\.EchoLoader"):
        pyecho.torch.EchoLoader(source)


def test_source_that_is_not_prepared_is_refused(make_accelerator):
    with pytest.raises(pyecho.ConfigError, match="went through accelerator"):
        EchoLoader(torch.arange(9), 2, accelerator=make_accelerator(), batch_size=3)


@pytest.mark.parametrize("examples", range(1, 30, 3))
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("split_batches", [False, True])
def test_examples_of_a_rank_are_counted(examples, drop_last, split_batches):
    batches = torch.utils.data.BatchSampler(range(examples), 4, drop_last)
    for rank in range(2):
        sampler = BatchSamplerShard(batches, 2, rank, split_batches)
        source = DataLoader(TensorDataset(torch.arange(examples)), batch_sampler=sampler)
        loader = pyecho.torch.EchoLoader(source, 3, batch_size=1, unbatch=True)
        assert len(loader) == 3 * sum(map(len, sampler))


PROGRAM = """
import json, sys, torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset
from pyecho.integrations.accelerate import EchoLoader

def make():
    torch.manual_seed(accelerator.process_index)  # the shares do not depend on it
    source = DataLoader(TensorDataset(torch.arange(50)), batch_size=4, shuffle=True)
    source = accelerator.prepare_data_loader(source)
    return EchoLoader(source, 2, accelerator=accelerator, batch_size=4, unbatch=True)

config = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=1)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3, dataloader_config=config)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
model, optimizer = accelerator.prepare(model, optimizer)
loader = make()
epochs, syncs = [], []
for epoch in range(2):
    epochs.append([])
    for step, (numbers,) in enumerate(loader):
        epochs[-1].append(numbers.tolist())
        with accelerator.accumulate(model):
            accelerator.backward(model(numbers[:, None].float()).sum())
            syncs.append(accelerator.sync_gradients)
            optimizer.step()
            optimizer.zero_grad()
        if (epoch, step) == (1, 4):
            accelerator.save_state(sys.argv[1])
del loader
loader = make()
accelerator.load_state(sys.argv[1])
rest = [numbers.tolist() for numbers, in loader]
weights = [each.item() for each in model.parameters()]
print(json.dumps({"epochs": epochs, "syncs": syncs, "rest": rest, "weights": weights}))
accelerator.end_training()
"""


def test_processes_train_on_their_shares_and_resume(tmp_path):
    ranks = run_ranks(PROGRAM, tmp_path / "state")
    for epoch in range(2):
        uses = Counter(n for rank in ranks for batch in rank["epochs"][epoch] for n in batch)
        # 50 examples make 13 batches, and 14 for two processes: 6 examples once more.
        assert sorted(uses.values()) == [2] * 44 + [4] * 6
        shares = [set(chain.from_iterable(rank["epochs"][epoch])) for rank in ranks]
        assert len(shares[0] & shares[1]) <= 6
    for rank in ranks:
        assert [len(batches) for batches in rank["epochs"]] == [14, 14]
        assert rank["syncs"] == 2 * [step % 3 == 2 or step == 13 for step in range(14)]
        assert rank["rest"] == rank["epochs"][1][5:]
        assert rank["weights"] == ranks[0]["weights"]
    assert ranks[0]["epochs"] != ranks[1]["epochs"]


def test_random_order_that_one_process_tells_the_others_is_refused():
    program = PROGRAM.replace("use_seedable_sampler=True, data_seed=1", "")
    program = program.replace("loader = make()", "\ntry: make()\nexcept ValueError as e: error = e")
    program = program[: program.index("epochs, syncs")] + "print(json.dumps(str(error)))"
    for error in run_ranks(program):
        assert "use_seedable_sampler=True" in error
