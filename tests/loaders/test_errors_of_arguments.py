"""Wrong arguments are refused at once; the error says what was given and what is needed."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from drivers import Iterated

import pyecho
import pyecho.torch

NUMBER = pyecho.Field((), int)


class Streamed(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([1])


WRONG_FACTORS = [
    *[0, 0.99, -1, math.nan, math.inf, "2", None, [2], 1j, 10**400, 1e18, True, np.float32],
    *[np.array([2, 3]), np.array([2]), np.True_, np.array(True), np.timedelta64(2, "D")],
    *[np.timedelta64(2, "ns"), np.datetime64(2, "s"), np.complex64(2), np.str_("2")],
    *[torch.tensor([2.0]), torch.tensor(True)],
]


@pytest.mark.parametrize("factor", WRONG_FACTORS, ids=str)
def test_factor_is_a_number_of_at_least_one(factor):
    for make in (
        lambda: pyecho.EchoLoader([1], factor),
        lambda: pyecho.torch.EchoLoader([1], factor),
        lambda: pyecho.EchoBuffer(NUMBER, batch_size=1, factor=factor),
    ):
        with pytest.raises(pyecho.ConfigError, match=r"factor must be a number .* and below.*got"):
            make()


def test_factor_auto_is_gone_and_the_error_says_what_there_is():
    with pytest.raises(pyecho.ConfigError, match=r"Adaptive\(max=8\); .*best_factor.*advise"):
        pyecho.EchoLoader([1], "auto")


@pytest.mark.parametrize(
    "factor",
    [1.5, np.float32(1.5), Fraction(3, 2), Decimal("1.5"), np.array(1.5), torch.tensor(1.5)],
)
def test_any_kind_of_number_will_do(factor):
    loader = pyecho.EchoLoader(range(2), factor, batch_size=np.int16(2), seed=np.uint64(3))
    assert [len(batch) for batch in loader] == [2, 1]


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("batch_size", 1),
        ("shuffle_buffer", 0),
        ("prefetch", 1),
        ("threads", 0),
        ("epochs", 1),
        ("steps_per_epoch", 1),
        ("seed", 0),
        ("augment_workers", 0),
        ("max_bytes", 0),
    ],
)
def test_whole_number_out_of_range_is_named_with_its_bounds(name, least):
    for wrong in (least - 1, 2**64):
        with pytest.raises(
            pyecho.ConfigError, match=rf"^{name} must be .* {least} .*, got {wrong}"
        ):
            pyecho.EchoLoader([1], **{name: wrong})
    for wrong in (2.0, "1G", False):
        with pytest.raises(pyecho.ConfigError, match=rf"^{name} must be an int, got {wrong!r}"):
            pyecho.EchoLoader([1], **{name: wrong})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shuffle_buffer": 2**28, "factor": 16}, "shuffle_buffer times factor must stay below"),
        ({"pin_memory": "pinned"}, "pin_memory must be True, False or None, got 'pinned'"),
        ({"unbatch": "list"}, "unbatch must be True, False or 'lists', got 'list'"),
        (
            {"batch_size": 8, "shuffle_buffer": 7, "unique_in_batch": True},
            "unique_in_batch needs a pool of at least batch_size = 8.*shuffle_buffer = 7; raise",
        ),
        ({"unbatch": True}, "unbatch=True.*needs a batch_size"),
        ({"unique_in_batch": True}, "unique_in_batch=True.*needs a batch_size"),
        ({"drop_last": True}, "drop_last=True.*needs a batch_size"),
        ({"augment": 3}, r"augment must be a function of \(batch, rng\)"),
        ({"batch_size": 2, "collate_fn": "list"}, "collate_fn must be a function of a list"),
        ({"collate_fn": list}, "collate_fn makes batches of examples, so it needs a batch_size"),
        ({"collate_fn": list, "batch_size": 2, "unbatch": True}, "unbatch=True splits"),
        ({"pad_last": True}, "needs a batch_size"),
        ({"pad_last": True, "batch_size": 4, "drop_last": True}, "leaves the last batch out"),
        ({"pad_last": True, "batch_size": 4, "factor": pyecho.Adaptive(4)}, "steps_per_epoch"),
        ({"pad_last": True, "batch_size": 4, "unique_in_batch": True}, "steps_per_epoch"),
        ({"pad_last": True, "batch_size": 4, "source": Iterated([1])}, "steps_per_epoch"),
        ({"pad_last": True, "batch_size": 4, "source": iter([1])}, "steps_per_epoch"),
        ({"batch_size": 4, "shuffle_buffer": 3, "factor": pyecho.Adaptive(2)}, "batch of 4, but"),
    ],
)
def test_options_that_are_wrong_or_do_not_go_together_are_named(arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.EchoLoader(**{"source": [1]} | arguments)


@pytest.mark.parametrize("epoch", [-1, 1.5, "1", None])
def test_wrong_epoch_is_refused(epoch):
    with pytest.raises(pyecho.ConfigError, match="epoch must be"):
        pyecho.EchoLoader([1]).set_epoch(epoch)


def buffer_of(source, **options):
    return pyecho.EchoBuffer(NUMBER, batch_size=1, **options)


def jax_loader(source, **options):
    return pytest.importorskip("pyecho.jax", exc_type=ImportError).EchoLoader(source, **options)


@pytest.mark.parametrize(
    ("make", "wrong", "hint"),
    [
        (pyecho.EchoLoader, "shufle_buffer", "did you mean 'shuffle_buffer'?"),
        (pyecho.EchoLoader, "xyz", "the options are source, factor, batch_size, unbatch,"),
        (pyecho.torch.EchoLoader, "devcie", "did you mean 'device'?"),
        (jax_loader, "shardin", "did you mean 'sharding'?"),
        (buffer_of, "shufle_buffer", "did you mean 'shuffle_buffer'?"),
        (pyecho.EchoLoader, "memory", "pass pin_memory=True (pinned), False (pageable) or None"),
        (pyecho.EchoLoader, "pad", "give the leaf a pyecho.Field(..., pad=), in fields="),
        (pyecho.EchoLoader, "flatten", 'pass unbatch="lists"'),
        (pyecho.EchoLoader, "retries", "made once more, then WorkerError names it"),
        (pyecho.EchoLoader, "capacity", "it is called shuffle_buffer="),
        (buffer_of, "capacity", "it is called shuffle_buffer="),
        (buffer_of, "burst", "it is called slots_ahead="),
        (buffer_of, "leases", "it is called held="),
        (buffer_of, "pad", "give the leaf a pyecho.Field(..., pad=), in the spec"),
        (buffer_of, "memory", "pass allocate=, a function that returns such memory"),
        (buffer_of, "flatten", "put() each example of a list"),
        (pyecho.EchoLoader, "worth", "call loader.advise(step, worth=worth)"),
        (pyecho.EchoLoader, "device", "pyecho.torch.EchoLoader has it"),
        (pyecho.torch.EchoLoader, "sharding", "pyecho.jax.EchoLoader has it"),
        (pyecho.EchoLoader, "prefetch_factor", "pass it to a torch.utils.data.DataLoader"),
    ],
)
def test_unknown_option_is_refused_with_a_hint(make, wrong, hint):
    with pytest.raises(TypeError) as raised:
        make([1], **{wrong: 3})
    assert f"got an unexpected keyword argument {wrong!r}; " in str(raised.value)
    assert hint in str(raised.value)


def device_of(source, **options):
    return pyecho.torch.Device("cuda:0", **options)


GONE = {
    "echo_on": 'pass device=pyecho.torch.Device("cuda:0", echo=True)',
    "device_dtype": 'pass device=pyecho.torch.Device("cuda:0", dtype=...)',
    "device_augment": 'pass device=pyecho.torch.Device("cuda:0", augment=...)',
    "max_device_bytes": 'pass device=pyecho.torch.Device("cuda:0", max_bytes=...)',
}


@pytest.mark.parametrize("gone", GONE)
def test_an_option_that_is_gone_names_its_successor(gone):
    name = gone.removesuffix("_on").removeprefix("device_").replace("_device", "")
    for make, shown, instead in (
        (pyecho.torch.EchoLoader, "EchoLoader", GONE[gone]),
        (pyecho.EchoLoader, "EchoLoader", f"{GONE[gone]} to pyecho.torch.EchoLoader"),
        (device_of, "Device", f"it is called {name}="),
    ):
        with pytest.raises(TypeError) as raised:
            make([1], **{gone: None})
        message = f"{shown}() got an unexpected keyword argument {gone!r}; {instead}"
        assert str(raised.value) == message


@pytest.mark.parametrize(
    ("make", "gone"),
    [
        *[(pyecho.EchoLoader, "burst"), (pyecho.torch.EchoLoader, "leases")],
        *[(buffer_of, "retries"), (buffer_of, "worth"), (device_of, "capacity")],
    ],
)
def test_an_option_that_is_gone_names_no_successor_of_another_class(make, gone):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{gone}'; the options"):
        make([1], **{gone: 3})


@pytest.mark.parametrize("wrong", ["False", 0, None])
@pytest.mark.parametrize(
    "name",
    ["unique_in_batch", "drop_last", "pad_last", "with_info", "copy", "progress"],
)
def test_flag_is_true_or_false(name, wrong):
    with pytest.raises(pyecho.ConfigError, match=f"^{name} must be True or False, got {wrong!r}$"):
        pyecho.EchoLoader([1], **{"batch_size": 2, name: wrong})


@pytest.mark.parametrize("options", [{"batch_size": 2**29}, {"batch_size": 2**28, "factor": 64}])
def test_default_of_shuffle_buffer_fits_any_batch_size(options):
    assert isinstance(pyecho.EchoLoader([1], **options), pyecho.EchoLoader), "it is not refused"


@pytest.mark.parametrize("factor", [2**31, pyecho.Adaptive(max=2**16)], ids=str)
def test_batch_size_without_room_for_distinct_items_is_named_itself(factor):
    with pytest.raises(pyecho.ConfigError, match=r"^batch_size must be at most \d+ .*got 131072$"):
        pyecho.EchoLoader([1], factor, batch_size=2**17, unique_in_batch=True)


@pytest.mark.parametrize(
    ("name", "successor"),
    [
        ("trace", "pyecho.trace(path)"),
        ("to_tf_dataset", "pyecho.integrations.tf.to_tf_dataset(loader)"),
        ("to_keras", "model.fit((batch for _ in range(epochs) for batch in loader)"),
    ],
)
def test_method_that_is_gone_names_its_successor(name, successor):
    for loader in pyecho.EchoLoader([1], 2), pyecho.torch.EchoLoader([1], 2):
        with pytest.raises(AttributeError) as raised:
            getattr(loader, name)
        assert str(raised.value).startswith(f"a loader has no {name}(); use {successor}")
        with pytest.raises(AttributeError, match="object has no attribute 'nothing'"):
            loader.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="is an IterableDataset"):
        pyecho.torch.EchoLoader(Streamed(), 2).dataset  # noqa: B018


def test_batches_of_batches_are_warned_of():
    source = torch.utils.data.DataLoader(torch.arange(64.0), batch_size=32)
    with pytest.warns(UserWarning, match=r"yields batches \(of 32\).*unbatch=True") as caught:
        pyecho.torch.EchoLoader(source, 2, batch_size=32)
    assert caught[0].filename == __file__
    pyecho.torch.EchoLoader(source, 2, batch_size=32, unbatch=True)
    pyecho.torch.EchoLoader(source, 2)


def test_loader_shows_what_it_is():
    loader = pyecho.EchoLoader([1, 2], 2.5, batch_size=4, shuffle_buffer=9)
    assert "EchoLoader(list, factor=2.5, batch_size=4, shuffle_buffer=9)" in repr(loader)


# ---------------------------------------------------------------- specs


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (np.float32, r"nest of pyecho\.Field.*spec_of"),
        ({"x": 3}, r"nest of pyecho\.Field.*spec_of"),
        ({"a": []}, "at least one leaf"),
    ],
)
def test_spec_is_a_nest_of_fields(spec, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.EchoBuffer(spec, batch_size=1)


def test_fields_are_values():
    assert pyecho.Field(3, "f4") == pyecho.Field([np.int8(3)], np.float32)
    assert hash(pyecho.Field(3, "f4")) == hash(pyecho.Field((3,), np.float32))
    with pytest.raises(AttributeError):
        pyecho.Field(3, "f4").shape = (4,)
    with pytest.raises(pyecho.ConfigError, match="an extent of a shape must be at least 0"):
        pyecho.Field((3, -1), float)
    with pytest.raises(pyecho.ConfigError, match="Python objects"):
        pyecho.Field((), np.dtype([("a", object)]))


def test_spec_of_describes_an_example():
    spec = pyecho.spec_of({"x": np.zeros((2, 3), "f4"), "y": [1, 2.5, True, "s", None]})
    assert spec == {
        "x": pyecho.Field((2, 3), "f4"),
        "y": [pyecho.Field((), kind) for kind in (int, float, bool, object, object)],
    }


def test_bool_of_numpy_is_no_kind_of_worker():
    with pytest.raises(pyecho.ConfigError, match="workers must be 'process' or 'thread', got True"):
        pyecho.EchoLoader([1], workers=np.True_)
