"""Items unlike the first: SpecMismatch says where, what was expected, what came; nothing lost."""

from collections import namedtuple

import numpy as np
import pytest

import pyecho

Pair = namedtuple("Pair", ["left", "right"])
GOOD = {"image": np.zeros((2, 3), np.float32), "label": 1, "extra": [np.zeros(2), "name"]}


def outcome(source, factor=2, batch_size=3, **arguments):
    """The rows emitted before the error, and the error."""
    rows = 0
    batches = iter(pyecho.EchoLoader(source, factor, batch_size=batch_size, **arguments))
    with pytest.raises(pyecho.SpecMismatch) as raised:
        for batch in batches:
            rows += len(batch["label"])
    assert list(batches) == [], "after the error the iteration is over"
    return rows, str(raised.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"image": np.zeros((2, 4), np.float32)},
            [
                "item['image']",
                "expected float32 array of shape (2, 3)",
                "got float32 array of shape (2, 4)",
                "crop or pad",
            ],
        ),
        (
            {"image": np.zeros((2, 3), np.float64)},
            ["item['image']", "expected float32 array of shape (2, 3)", "got float64 array"],
        ),
        ({"image": np.zeros(6, np.float32)}, ["item['image']", "shape (6,)"]),
        ({"image": np.zeros((1, 2, 3), np.float32)}, ["item['image']", "shape (1, 2, 3)"]),
        ({"image": "a picture"}, ["item['image']", "got str"]),
        ({"image": None}, ["item['image']", "got NoneType"]),
        ({"image": [[0, 0, 0], [0, 0, 0]]}, ["item['image']", "got list"]),
        ({"label": 2.5}, ["item['label']", "int64 array of shape ()", "got float"]),
        ({"label": "cat"}, ["item['label']", "got str"]),
        ({"label": np.zeros(1, int)}, ["item['label']", "shape (1,)"]),
        ({"label": 2**63}, ["item['label']", "int64", "does not fit"]),
        ({"extra": [np.zeros(2)]}, ["item['extra']", "expected a list of 2", "got list of 1"]),
        ({"extra": (np.zeros(2), "name")}, ["item['extra']", "expected a list of 2", "got tuple"]),
        ({"extra": [np.zeros(3), "name"]}, ["item['extra'][0]", "shape (3,)"]),
        ({"extra": {}}, ["item['extra']", "expected a list of 2", "got dict"]),
        ({"more": 1}, ["item: expected a dict with keys ('image', 'label', 'extra')", "'more'"]),
    ],
)
def test_the_leaf_is_named_with_what_was_expected_and_what_came(change, words):
    rows, message = outcome([GOOD] * 4 + [GOOD | change] + [GOOD] * 4)
    assert rows == 8, "every use of everything before it"
    for word in words:
        assert word in message


@pytest.mark.parametrize("key", ["image", "label", "extra"])
def test_a_missing_key_is_told(key):
    less = {name: value for name, value in GOOD.items() if name != key}
    rows, message = outcome([GOOD, less])
    assert rows == 2
    assert "expected a dict with keys ('image', 'label', 'extra')" in message


def test_a_key_by_another_name_is_told():
    other = {("picture" if name == "image" else name): value for name, value in GOOD.items()}
    assert "'picture'" in outcome([GOOD, other])[1]


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (Pair(1, 2.5), Pair(1, "x"), "item.right: expected float64 .* got str"),
        ((1, 2), (1, 2, 3), r"item: expected a tuple of 2, got tuple of 3"),
        ((1, 2), [1, 2], r"item: expected a tuple of 2, got list"),
        (np.zeros(2), 1.0, r"item: expected float64 array of shape \(2,\), got float"),
        (1, "one", "item: expected int64 .* got str"),
        (True, 2, "item: expected bool .* got int"),
        (np.float32(1), 1.0, "item: expected float32 .* got float"),
        (1j, 2.0, "item: expected complex128 .* got float"),
        ({"a": 1}, 5, r"item: expected a dict with keys \('a',\), got int"),
    ],
)
def test_every_kind_of_structure_is_checked(first, second, words):
    with pytest.raises(pyecho.SpecMismatch, match=words):
        for _ in pyecho.EchoLoader([first, second], 1, batch_size=1):
            pass


def test_each_message_says_what_to_do():
    _, message = outcome([GOOD, GOOD | {"label": "cat"}])
    assert "every item must be like the first" in message
    _, message = outcome([GOOD, GOOD | {"more": 1}])
    assert "unify them in the source" in message


@pytest.mark.parametrize("first", [None, "text"])
def test_an_array_where_the_first_item_has_none_is_an_error(first):
    objects = [first, "more", 3, np.array(["o"], object), b"", None]
    [batch] = pyecho.EchoLoader(
        [{"x": 1, "mask": it} for it in objects], 1, batch_size=6, shuffle_buffer=0
    )
    assert batch["mask"] == objects
    torch = pytest.importorskip("torch")
    for array in (np.zeros(2), torch.zeros(2)):
        source = [{"x": 1, "mask": first}, {"x": 1, "mask": array}]
        with pytest.raises(
            pyecho.SpecMismatch,
            match=r"item\['mask'\]: the first item has (None|.* type str) here.*zeros, and a flag",
        ):
            list(pyecho.EchoLoader(source, 1, batch_size=2))


def test_a_field_for_objects_takes_arrays_too():
    buffer = pyecho.EchoBuffer(pyecho.Field((), object), batch_size=2, factor=1)
    given = [np.zeros(2), np.zeros(3)]
    for array in given:
        buffer.put(array)
    buffer.close()
    [batch] = buffer
    assert all(out is array for out, array in zip(batch, given, strict=True))


@pytest.mark.parametrize("position", [0, 1])
@pytest.mark.parametrize("arguments", [{}, {"unbatch": True}])
def test_masked_arrays_are_refused_wherever_they_come(position, arguments):
    masked = np.ma.masked_array(np.arange(4.0), [0, 1, 0, 1])
    source = [{"x": np.arange(4.0)}, {"x": np.arange(4.0)}]
    source[position] = {"x": masked}
    with pytest.raises(pyecho.ConfigError, match=r"lose their mask in a batch; use \.filled"):
        list(pyecho.EchoLoader(source, 1, batch_size=2, **arguments))


def test_a_shared_masked_array_keeps_its_mask_and_both_are_read_only():
    [use] = pyecho.EchoLoader([np.ma.masked_array([1.0, 2.0], [0, 1])], 1)
    assert use.mask.tolist() == [False, True]
    for change in (lambda: use.__setitem__(0, 5), lambda: use.__setitem__(0, np.ma.masked)):
        with pytest.raises(ValueError, match="read-only"):
            change()


@pytest.mark.parametrize("shuffle_buffer", [0, 3, 100])
@pytest.mark.parametrize("drop_last", [False, True])
def test_with_a_shuffle_buffer_everything_before_comes_out_too(shuffle_buffer, drop_last):
    source = [{"label": n} for n in range(10)] + [{"label": "x"}]
    rows, _ = outcome(
        source, factor=3, batch_size=4, shuffle_buffer=shuffle_buffer, drop_last=drop_last
    )
    assert rows == (28 if drop_last else 30)


def test_the_next_epoch_works_again():
    source = [GOOD, GOOD | {"label": "cat"}]
    loader = pyecho.EchoLoader(source, 2, batch_size=4)
    with pytest.raises(pyecho.SpecMismatch):
        list(loader)
    source[1] = GOOD
    assert [len(batch["label"]) for batch in loader] == [4]


def test_it_is_a_value_error():
    assert issubclass(pyecho.SpecMismatch, ValueError)


def test_torch_mismatches_speak_of_torch_dtypes_as_far_as_they_go():
    torch = pytest.importorskip("torch")
    import pyecho.torch

    loader = pyecho.torch.EchoLoader([torch.zeros(2), torch.zeros(3)], 1, batch_size=2)
    with pytest.raises(pyecho.SpecMismatch, match=r"float32 array of shape \(2,\).*\(3,\)"):
        list(loader)
