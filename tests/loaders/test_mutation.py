"""EchoMutated: a tensor that the consumer changed between two uses of an item is found out."""

import numpy as np
import pytest

import pyecho

torch = pytest.importorskip("torch")


def item():
    return {"image": torch.zeros(3), "meta": [torch.ones(2), "name"]}


@pytest.mark.parametrize("shuffle_buffer", [0, 3])
def test_a_tensor_changed_in_place_raises_and_names_leaf_and_remedy(shuffle_buffer):
    uses = iter(pyecho.EchoLoader([item()], 2, shuffle_buffer=shuffle_buffer))
    next(uses)["image"].add_(1)
    with pytest.raises(pyecho.EchoMutated, match=r"item\['image'\].*copy=True"):
        next(uses)


def test_the_leaf_is_named_inside_nests():
    uses = iter(pyecho.EchoLoader([item()], 2))
    next(uses)["meta"][0][0] = 5
    with pytest.raises(pyecho.EchoMutated, match=r"item\['meta'\]\[0\]"):
        next(uses)


def test_a_bare_tensor_is_watched_too():
    uses = iter(pyecho.EchoLoader([torch.zeros(2)], 2))
    next(uses).mul_(2)
    with pytest.raises(pyecho.EchoMutated):
        next(uses)


def test_a_change_after_the_last_use_is_nobodys_business():
    for use in pyecho.EchoLoader([item(), item()], 1):
        use["image"].add_(1)


def test_reading_and_new_tensors_are_no_mutation():
    total = 0
    for use in pyecho.EchoLoader([item(), item()], 3):
        total += (use["image"] + 1).sum().item()
    assert total == 18


def test_a_source_that_writes_into_one_tensor_over_and_over_is_found_out():
    shared = torch.zeros(2)

    def source():
        for value in range(3):
            shared.fill_(value)
            yield shared

    with pytest.raises(pyecho.EchoMutated):
        list(pyecho.EchoLoader(source(), 2, shuffle_buffer=3))


def test_the_loader_goes_on_with_the_next_item():
    uses = iter(pyecho.EchoLoader([item(), item()], 2))
    next(uses)["image"].add_(1)
    with pytest.raises(pyecho.EchoMutated):
        next(uses)
    assert [use["image"].sum().item() for use in uses] == [0, 0]


def test_copy_makes_changes_harmless():
    for use in pyecho.EchoLoader([item(), item()], 3, copy=True):
        assert use["image"].sum() == 0
        use["image"].add_(1)


def test_inference_tensors_have_no_version_and_pass():
    with torch.inference_mode():
        tensor = torch.zeros(2)
    assert len(list(pyecho.EchoLoader([tensor], 3))) == 3


def test_it_is_a_runtime_error():
    assert issubclass(pyecho.EchoMutated, RuntimeError)
    assert issubclass(pyecho.EchoMutated, pyecho.EchoError)


def test_a_read_only_array_stays_read_only_through_torch():
    array = np.zeros(3)
    array.flags.writeable = False
    for batch in pyecho.EchoLoader([array] * 4, 2, batch_size=2):
        torch.from_numpy(batch).add_(1)
    assert array.sum() == 0
