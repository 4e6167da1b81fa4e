"""`augment_example` is called for each use of an example; `unbatch="lists"` splits lists."""

import threading

import numpy as np
import pytest
import torch
from worked import Named, Rows, emitted

import pyecho
import pyecho.torch
from pyecho import ConfigError, SpecMismatch

BATCHES = {"batch_size": 8}


def cropped(example, rng):
    """Changes the example in place, and returns another nest."""
    example["x"] += rng.integers(1000)
    return {"x": example["x"][1:], "name": example["name"], "drawn": rng.random(), "flag": True}


@pytest.mark.parametrize("workers", [1, 3])
def test_augment_example_has_a_generator_for_every_use_and_makes_the_batch(workers):
    options = BATCHES | {"augment_example": cropped}
    epochs = emitted(Named(), augment_workers=workers, **options)
    assert epochs == emitted(Named(), **options)
    uses = [row for batches in epochs for batch, _ in batches for row in batch["drawn"]]
    assert len(set(uses)) == len(uses) == 4 * 60
    for batch, (indices, _) in epochs[0]:
        assert np.shape(batch["x"]) == (len(indices), 2, 5)
        assert batch["name"] == [f"item {index}" for index in indices]


def test_collate_fn_gets_examples_that_are_their_own():
    def ids(examples):
        return [(float(example["x"].max()), example["drawn"]) for example in examples]

    made = emitted(Named(), **BATCHES, augment_example=cropped)
    collated = emitted(Named(), **BATCHES, augment_example=cropped, collate_fn=ids)
    for batches, others in zip(made, collated, strict=True):
        for (batch, _), (pairs, _) in zip(batches, others, strict=True):
            assert batch["drawn"] == [drawn for _, drawn in pairs]
            assert np.max(batch["x"], axis=(1, 2)).tolist() == [value for value, _ in pairs]


def test_tensors_stay_tensors_and_draws_of_torch_are_seeded():
    def noisy(example, rng):
        return (example["x"] + torch.rand(3, 5)).bfloat16(), example["index"]

    batches = [
        list(pyecho.torch.EchoLoader(Rows(20), 1, batch_size=20, augment_example=noisy))
        for _ in range(2)
    ]
    [[(values, indices)], [(others, _)]] = batches
    assert (values.dtype, values.shape, indices.dtype) == (torch.bfloat16, (20, 3, 5), torch.int64)
    assert torch.equal(values, others)


WRONG = {
    "none": (lambda example, rng: None, ConfigError, "augment_example returned None"),
    "rows of other sizes": (
        lambda example, rng: np.zeros(1 + example["n"] % 2),
        SpecMismatch,
        r"\(2,\)",
    ),
    "a leaf fewer": (
        lambda example, rng: dict([*example.items()][example["n"] % 2 :]),
        SpecMismatch,
        "nest",
    ),
    "other numbers": (
        lambda example, rng: {"n": 0.7 if example["n"] else 0},
        SpecMismatch,
        "examples that are alike",
    ),
    "an array later": (
        lambda example, rng: {"x": np.zeros(2) if example["n"] else None},
        SpecMismatch,
        r"alike.*shapes \(\) and \(2,\)",
    ),
    "another part": (
        lambda example, rng: example | {"deep": [{"k": [0]}] if example["n"] else [{"k": [0, 1]}]},
        SpecMismatch,
        r"alike.*item\['deep'\]\[0\]\['k'\]: expected a list of 2, got list of 1",
    ),
}
for other in (list(range(4)), {"n": 0}, "text", (1, 2, 3, 4)):
    for odd in (0, 2):
        WRONG[f"{other} at {odd}"] = (
            lambda example, rng, odd=odd, other=other: other if example["n"] == odd else example,
            SpecMismatch,
            r"that are alike.*(expected a|dtypes|a leaf in)",
        )


@pytest.mark.parametrize(("augment_example", "error", "message"), WRONG.values(), ids=WRONG)
def test_augment_example_with_a_wrong_result_is_an_error(augment_example, error, message):
    source = [{"n": number, "x": 1.0, "y": 2.0, "z": 3.0} for number in range(4)]
    options = {"batch_size": 4, "shuffle_buffer": 0, "augment_example": augment_example}
    with pytest.raises(error, match=message):
        list(pyecho.EchoLoader(source, 1, augment_workers=1, **options))


def test_augment_example_needs_examples():
    with pytest.raises(ConfigError, match="augment_example makes batches of examples"):
        pyecho.EchoLoader([1], augment_example=cropped)


class Patches(Rows):
    """Items are lists of none to three examples, or one."""

    def __getitem__(self, index):
        parts = [{"x": np.full(4, 10 * index + part)} for part in range(index % 4)]
        return parts if index % 5 else {"x": np.full(4, 10 * index)}


def test_length_is_unknown_and_steps_make_one():
    with pytest.raises(TypeError, match="does not tell how many examples"):
        len(pyecho.EchoLoader(Patches(), unbatch="lists"))
    [batches] = emitted(Patches(), 1, unbatch="lists", steps_per_epoch=5, **BATCHES)
    assert len(batches) == 5


@pytest.mark.parametrize("odd", [0, 1])
@pytest.mark.parametrize("loader", [pyecho.EchoLoader, pyecho.torch.EchoLoader])
def test_masked_arrays_of_augment_example_are_refused(odd, loader):
    def mask(example, rng):
        return np.ma.masked_array(np.arange(2.0), [0, 1]) if example == odd else np.arange(2.0)

    with pytest.raises(ConfigError, match="lose their mask"):
        list(loader([0, 1], 1, batch_size=2, shuffle_buffer=0, augment_example=mask))


class Words:
    def __init__(self, *words):
        self.words = list(words)


@pytest.mark.parametrize("collate_fn", [None, list])
def test_objects_of_an_example_are_its_own_to_change(collate_fn):
    def changed(example, rng):
        example["words"].words.append("changed")
        return {"count": len(example["words"].words)}

    source = [{"x": 1, "words": Words("as", "it", "was")}]
    loader = pyecho.EchoLoader(
        source, 4, batch_size=2, augment_example=changed, collate_fn=collate_fn
    )
    counts = [
        batch["count"].tolist() if collate_fn is None else [example["count"] for example in batch]
        for batch in loader
    ]
    assert counts == [[4, 4], [4, 4]]
    assert source[0]["words"].words == ["as", "it", "was"]


def test_objects_that_cannot_be_copied_are_named():
    loader = pyecho.EchoLoader(
        [{"x": 1, "lock": threading.Lock()}],
        2,
        batch_size=2,
        augment_example=lambda example, rng: example,
    )
    with pytest.raises(ConfigError, match=r"lock.*__deepcopy__"):
        list(loader)
