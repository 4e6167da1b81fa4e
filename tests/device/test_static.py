"""`static=True`: every batch in the same tensors. `max_device_bytes`: a bound of what is kept."""

import pytest
import torch

import pyecho.torch

WAYS = {
    "batches": {},
    "host": {"batch_size": 4, "drop_last": True},
    "device": {"batch_size": 4, "drop_last": True, "echo_on": "device"},
    "padded": {"batch_size": 4, "pad_last": True, "echo_on": "device"},
    "augmented": {"device_augment": lambda batch, generator: batch},
}


def rows(count=21):
    return [{"x": torch.full((2, 5), float(n)), "name": f"number {n}"} for n in range(count)]


def values(batch):
    return batch["x"].tolist(), batch["name"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("with_info", [False, True])
def test_each_batch_is_in_the_same_tensors_with_the_values_it_would_have(device, way, with_info):
    arguments = {"factor": 3, "device": "cuda:0", "with_info": with_info, **WAYS[way]}
    moving = pyecho.torch.EchoLoader(rows(), **arguments)
    static = pyecho.torch.EchoLoader(rows(), **arguments, static=True)
    places = set()
    for _ in range(2):
        for ours, theirs in zip(static, moving, strict=True):
            if with_info:
                (ours, our_info), (theirs, their_info) = ours, theirs
                assert our_info.source_index.tolist() == their_info.source_index.tolist()
            assert values(ours) == values(theirs)
            places.add(id(ours["x"]))
            kept = ours["x"]
    assert places == {id(kept)}


def test_they_may_be_changed_in_place_in_batch_echoing_too(device):
    for batch in pyecho.torch.EchoLoader(rows(), 3, device="cuda:0", static=True):
        assert len(batch["x"].unique()) == 1
        batch["x"][0] = -1


def test_the_first_batch_may_come_in_inference_mode_and_gradients_may_be_wanted(device):
    loader = pyecho.torch.EchoLoader(rows(), 3, device="cuda:0", static=True)
    with torch.inference_mode():
        batch = next(iter(loader))
    batch["x"].requires_grad_(True)
    assert len(list(loader)) == 63


def test_tensors_are_found_by_their_names_and_are_never_the_same(device):
    one, two = torch.ones(2), torch.full((2,), 2.0)
    source = [{"a": one, "b": two}, {"b": two, "a": one}] * 3

    def aliased(batch, generator):
        return {"same": (batch["a"], batch["a"]), **batch}

    options = {"device": "cuda:0", "static": True, "device_augment": aliased}
    first = None
    for batch in pyecho.torch.EchoLoader(source, 1, **options):
        first = first or batch
        assert batch["a"] is first["a"]
        assert batch["same"][0] is not batch["same"][1]
        assert (int(batch["a"][0]), int(batch["b"][0]), int(batch["same"][1][0])) == (1, 2, 1)


def test_batches_must_be_alike_and_the_epoch_ends_where_one_is_not(device):
    source = [*rows(3), {"x": torch.zeros(2, 6), "name": "longer"}]
    loader = pyecho.torch.EchoLoader(source, 1, device="cuda:0", static=True)
    batches = iter(loader)
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(pyecho.SpecMismatch, match=r"\['x'\].*\(2, 5\).*\(2, 6\)"):
        next(batches)
    assert list(batches) == []


def test_a_short_last_batch_must_be_dropped():
    with pytest.raises(pyecho.ConfigError, match="drop_last=True"):
        pyecho.torch.EchoLoader(rows(), 3, batch_size=4, device="cuda:0", static=True)


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ({}, (2 + 1 + 2) * 40),
        ({"batch_size": 4}, 2 * 4 * 40),
        ({"batch_size": 4, "device_dtype": torch.float16}, 2 * 4 * 20),
        # The pool has twice the batch size more slots than the shuffle buffer.
        ({"batch_size": 4, "echo_on": "device"}, (6 + 8) * 40 + 2 * 4 * 40),
    ],
)
def test_what_is_kept_on_the_device_has_a_bound(device, arguments, needed):
    arguments = {"device": "cuda:0", "shuffle_buffer": 6, "memory": "pageable", **arguments}
    if "batch_size" not in arguments:
        arguments["shuffle_buffer"] = 3
    source = [row["x"] for row in rows()] * 20

    def take(limit):
        return next(iter(pyecho.torch.EchoLoader(source, 2, **arguments, max_device_bytes=limit)))

    with pytest.raises(pyecho.ConfigError, match=r"need (\d+) bytes on cuda:0, but") as raised:
        take(10)
    assert f"need {needed} bytes" in str(raised.value)
    with pytest.raises(pyecho.ConfigError, match="max_device_bytes is"):
        take(needed - 1)
    take(needed)


def test_an_error_of_the_source_follows_a_padded_batch(device):
    def failing():
        yield from rows(6)
        raise OSError("disk")

    options = {"device": "cuda:0", "pad_last": True, "static": True}
    for echo_on in ("host", "device"):
        loader = pyecho.torch.EchoLoader(failing(), 1, batch_size=4, echo_on=echo_on, **options)
        batches = iter(loader)
        assert [len(next(batches)["x"]) for _ in range(2)] == [4, 4]
        with pytest.raises(OSError, match="disk"):
            next(batches)
