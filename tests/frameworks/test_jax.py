"""`pyecho.jax`: order, placement, padding, states and the life of batches, on four devices."""

import os
import random
import socket
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"  # read with the first array
os.environ["JAX_PLATFORMS"] = "cpu"
jax.config.update("jax_platforms", "cpu")

import jax.numpy as jnp
import ml_dtypes
from jax.sharding import NamedSharding, PartitionSpec

import pyecho
from pyecho.jax import EchoLoader

EXAMPLES = [{"x": np.full((3, 2), i, np.float32), "y": i} for i in range(50)]


def mesh():
    return jax.make_mesh((4,), ("data",))


def as_numpy(batches):
    return [jax.tree.map(np.array, batch) for batch in batches]


def assert_same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- what arrives


@pytest.mark.parametrize("options", [{}, {"epochs": 2}, {"threads": 0}, {"unique_in_batch": True}])
def test_batches_are_those_of_numpy_on_the_device(options):
    loaders = [
        kind(EXAMPLES, 2.5, batch_size=8, **options) for kind in (EchoLoader, pyecho.EchoLoader)
    ]
    for _ in range(2):
        placed, plain = list(loaders[0]), as_numpy(loaders[1])
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(placed))
        assert_same(as_numpy(placed), plain)
    assert loaders[0].stats().h2d_bytes > 0


def test_64_bit_numbers_arrive_as_jax_has_them():
    (batch,) = EchoLoader(EXAMPLES[:4], 1, batch_size=4)
    assert (batch["x"].dtype, batch["y"].dtype) == (jnp.float32, jnp.int32)


def test_bfloat16_arrives_bit_for_bit():
    rows = np.arange(64, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(16, 4)
    (batch,) = EchoLoader(rows, 1, batch_size=16, shuffle_buffer=1)
    assert batch.dtype == jnp.bfloat16
    np.testing.assert_array_equal(np.asarray(batch).view(np.uint16), rows.view(np.uint16))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [{"batch_size": 4, "unbatch": True}, {}, {"augment": True}])
def test_tensors_arrive_as_arrays_of_jax(options, dtype):
    torch = pytest.importorskip("torch")
    if "augment" in options:
        options = {"augment": lambda batch, rng: batch}
    source = [torch.full((4, 3), i, dtype=getattr(torch, dtype)) for i in range(3)]
    batches = list(EchoLoader(source, 1, shuffle_buffer=1, **options))
    assert [(batch.dtype, float(batch[0, 0])) for batch in batches] == [
        (dtype, i) for i in range(3)
    ]


def test_objects_stay_lists_and_the_info_stays():
    source = [{"x": np.float32(i), "name": str(i)} for i in range(8)]
    ((batch, info),) = EchoLoader(source, 1, batch_size=8, with_info=True)
    assert batch["name"] == [str(int(i)) for i in batch["x"]]
    assert isinstance(info, pyecho.EchoInfo)
    np.testing.assert_array_equal(info.source_index, batch["x"])


@pytest.mark.parametrize("dtype", ["M8[s]", ">f4", "S3"])
def test_dtype_that_jax_does_not_have_is_refused(dtype):
    with pytest.raises(pyecho.ConfigError, match="JAX has no arrays of dtype"):
        next(iter(EchoLoader([np.zeros(2, dtype)] * 4, batch_size=2)))


def test_items_of_batch_echoing_are_put_once_and_other_leaves_pass():
    batches = [{"x": np.full((2, 3), i, np.float32), "names": ["a", "b"]} for i in range(3)]
    uses = list(EchoLoader(batches, 2))
    assert [float(use["x"][0, 0]) for use in uses] == [0, 0, 1, 1, 2, 2]
    assert uses[0]["x"] is uses[1]["x"]
    assert uses[0]["names"] == ["a", "b"]


def test_source_of_batch_echoing_may_use_its_memory_again():
    memory = np.zeros(1 << 16, np.float32)

    def source():
        for i in range(20):
            memory[:] = i
            yield memory

    assert [(float(x.min()), float(x.max())) for x in EchoLoader(source(), 2)] == [
        (i, i) for i in range(20) for _ in range(2)
    ]


def test_copy_lets_a_step_donate_an_item():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    loader = EchoLoader([np.zeros(4, np.float32)] * 3, 2, copy=True)
    assert [float(step(x)[0]) for x in loader] == [1.0] * 6


# ---------------------------------------------------------------- where it arrives


def test_mesh_divides_the_rows_among_its_devices():
    for batch in EchoLoader(EXAMPLES, batch_size=8, sharding=mesh(), drop_last=True):
        shards = batch["x"].addressable_shards
        assert sorted(shard.device.id for shard in shards) == [0, 1, 2, 3]
        assert {shard.data.shape for shard in shards} == {(2, 3, 2)}


def test_spec_is_cut_to_the_axes_of_each_array():
    grid = jax.make_mesh((2, 2), ("data", "model"))
    sharding = NamedSharding(grid, PartitionSpec("data", None, "model"))
    batch = next(iter(EchoLoader(EXAMPLES, batch_size=8, sharding=sharding, drop_last=True)))
    assert batch["x"].sharding.spec == PartitionSpec("data", None, "model")
    assert batch["y"].sharding.spec == PartitionSpec("data")


def test_device_takes_whole_batches():
    device = jax.devices()[2]
    assert {b["x"].device for b in EchoLoader(EXAMPLES, batch_size=8, sharding=device)} == {device}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 6, "drop_last": True}, "must be a multiple of 4, got 6"),
        ({"batch_size": 8}, "pass pad_last=True or drop_last=True"),
        ({"batch_size": 8, "sharding": "data"}, "must be a jax.sharding.Sharding"),
        ({"pad_last": True}, "needs a batch_size"),
        ({"batch_size": 8, "pad_last": True, "drop_last": True}, "pass one of them"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        EchoLoader(EXAMPLES, **{"sharding": mesh(), **options})


# ---------------------------------------------------------------- one compilation


@pytest.mark.parametrize("sharded", [False, True])
def test_padded_batches_are_full_and_compiled_once(sharded):
    @jax.jit
    def step(batch):
        return 2 * batch["y"]

    loader = EchoLoader(
        EXAMPLES, 3, batch_size=16, pad_last=True, sharding=mesh() if sharded else None
    )
    for _ in range(2):
        uses = np.bincount(np.concatenate([step(batch) for batch in loader]) // 2)
        assert (uses.sum(), uses.min(), uses.max()) == (160, 3, 4)
    assert step._cache_size() == 1


def test_short_batch_with_info_is_padded_too():
    *_, (batch, info) = EchoLoader(EXAMPLES, 1, batch_size=16, pad_last=True, with_info=True)
    assert (batch["x"].shape, len(info.use)) == ((16, 3, 2), 16)


# ---------------------------------------------------------------- states


@pytest.mark.parametrize("taken", [0, 1, 7, 12])
@pytest.mark.parametrize("payload", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 8},
        {"batch_size": 8, "pad_last": True, "with_info": True},
        {"shuffle_buffer": 4},
        {"shuffle_buffer": 4, "augment": lambda batch, rng: batch},
    ],
)
def test_loaded_state_goes_on_with_the_next_batch(options, payload, taken):
    whole = as_numpy(EchoLoader(EXAMPLES, 2, **options))
    loader = EchoLoader(EXAMPLES, 2, **options)
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    state = loader.state_dict(payload=payload)
    again = EchoLoader(EXAMPLES, 2, **options)
    again.load_state_dict(state)
    assert_same(as_numpy(again), whole[taken:])


# ---------------------------------------------------------------- life of batches


@pytest.mark.parametrize("kind", ["batches", "sharded batches", "items"])
def test_batches_stay_as_they_are_for_as_long_as_they_are_held(kind):
    """JAX uses the memory of an array as it is, where the alignment allows."""
    count, options = 10_000, {"shuffle_buffer": 1}
    source = (np.full((4, 64), i, np.float32) for i in range(count))
    if kind != "items":
        options |= {"batch_size": 4, "unbatch": True, "drop_last": True}
    if kind == "sharded batches":
        options["sharding"] = mesh()
    rng, held = random.Random(0), []

    def drop_one():
        number, batch = held.pop(rng.randrange(len(held)))
        assert (np.asarray(batch) == number).all()

    for number, batch in enumerate(EchoLoader(source, 1, **options)):
        held.append((number, batch))
        for _ in range(rng.randrange(3) if len(held) < 64 else 32):
            if held:
                drop_one()
    assert number == count - 1
    while held:
        drop_one()


def test_steps_that_are_under_way_keep_their_batches_without_a_warning():
    @jax.jit
    def slow(total, batch):
        for _ in range(4):
            batch = batch @ batch
        return total + batch.sum()

    total = jnp.float32(0)
    for batch in EchoLoader(np.zeros((4000, 64), np.float32), 2, batch_size=64):
        total = slow(total, batch)
    assert float(total) == 0


def test_gradients_of_a_batch_on_the_mesh_of_the_documentation():
    auto = (jax.sharding.AxisType.Auto,)
    devices = jax.make_mesh((jax.device_count(),), ("data",), axis_types=auto)
    (batch,) = EchoLoader(EXAMPLES[:8], 1, batch_size=8, sharding=devices, pad_last=True)
    gradient = jax.jit(jax.grad(lambda weights, x: (x.reshape(8, 6) @ weights).sum()))
    assert gradient(jnp.zeros(6), batch["x"]).tolist() == [sum(range(8))] * 6


def test_importing_pyecho_does_not_import_jax(tmp_path):
    code = "import sys, pyecho; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


# ---------------------------------------------------------------- several processes

PROCESS = """
import sys, jax, numpy as np
rank, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"localhost:{port}", 2, rank)
from pyecho.jax import EchoLoader
rows = np.arange(40, dtype=np.float32).reshape(20, 2)[rank::2]
mesh = jax.make_mesh((jax.device_count(),), ("data",))
total = jax.jit(lambda x: x.sum())
batches = EchoLoader(rows, 2, batch_size=4, sharding=mesh, pad_last=True)
sums = [float(total(batch)) for batch in batches]
print(len(sums), sum(sums), flush=True)
"""


def test_processes_bring_their_rows_of_a_global_batch(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), port],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0].split()[-2:] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert said == [["5", str(2.0 * sum(range(40)))]] * 2
