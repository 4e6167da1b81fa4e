"""`RunState`: the small state of a whole run as text, which is checked as one from a stranger."""

import numpy as np
import pytest
from resuming import Stateful

import pyecho

torch = pytest.importorskip("torch")
from pyecho.torch.distributed import RunState  # noqa: E402


class Odd(Stateful):
    """A source with more in its state than its place."""

    more = None

    def state_dict(self):
        return super().state_dict() | {"more": self.more}


def test_run_state_before_the_first_batch_goes_on_with_the_state_of_a_source():
    source = Odd(5)
    source.more = {"a": [1, 0.1, None, "text"], "b": {"c": [], "d": float("inf")}, "e": 2**100}
    loader = pyecho.EchoLoader(source, 2)
    assert len(list(loader)) == 10
    text = RunState(loader).state_dict()
    again = pyecho.EchoLoader(Odd(5), 2)
    RunState(again).load_state_dict(text)
    found, expected = (list(each) for each in (again, loader))
    assert [item["name"] for item in found] == [item["name"] for item in expected]


@pytest.mark.parametrize(
    "more",
    [b"x", {1: 2}, np.arange(3), [torch.zeros(2)], object(), {(1, 2): 3}, 3 + 4j, "\ud800" * 2**24],
    ids=range(8),
)
def test_run_state_before_the_first_batch_is_saved_only_if_it_can_be_loaded(more):
    source = Odd(5)
    source.more = more
    with pytest.raises(pyecho.EchoError, match=r"JSON.* torch\.save"):
        RunState(pyecho.EchoLoader(source, 2)).state_dict()


def run_text(change=lambda text: text):
    loader = pyecho.EchoLoader(np.arange(20), 2, batch_size=4)
    batches = iter(loader)
    next(batches)
    return change(RunState(loader).state_dict()["run"])


@pytest.mark.parametrize(
    "state",
    [
        {},
        None,
        {"run": 3},
        {"run": None},
        {"run": "{"},
        {"run": "[" * 100_000},
        {"run": '{"a":' * 100_000},
        {"run": "9" * 100_000},
        {"run": "3"},
        {"run": "null"},
        {"run": '"\ud800"'},
        {"run": run_text(lambda text: text[:-1])},
        {"run": run_text(lambda text: text.replace('"decisions"', '"decision"'))},
        {"run": run_text(lambda text: text.replace('"decisions": []', '"decisions": [2.5]'))},
        {
            "run": run_text(
                lambda text: text.replace('"decisions": []', '"decisions": [9999999999]')
            )
        },
        {"run": run_text(lambda text: text.replace('"decisions": []', '"decisions": {}'))},
        {"run": run_text().encode()},
    ],
    ids=range(17),
)
def test_run_state_refuses_any_other_text(state):
    loader = pyecho.EchoLoader(np.arange(20), 2, batch_size=4)
    with pytest.raises(pyecho.CheckpointError):
        RunState(loader).load_state_dict(state)


def test_run_state_of_many_lists_is_refused_before_they_are_made():
    loader = pyecho.EchoLoader(np.arange(20), 2, batch_size=4)
    with pytest.raises(pyecho.CheckpointError, match="lists and dicts"):
        RunState(loader).load_state_dict({"run": f"[{'[],' * 2**19}0]"})


def test_run_state_has_a_bound(monkeypatch):
    text = run_text()
    monkeypatch.setattr("pyecho.torch.distributed.MOST_TEXT", len(text) - 1)
    loader = pyecho.EchoLoader(np.arange(20), 2, batch_size=4)
    with pytest.raises(pyecho.CheckpointError, match="characters"):
        RunState(loader).load_state_dict({"run": text})
    with pytest.raises(pyecho.EchoError, match="characters"):
        run_text()


def test_run_state_of_several_ranks_holds_no_state_of_one_source():
    class Group:
        rank, size = 0, 2

        def gather(self, values):
            return [values, values]

    loader = pyecho.torch.EchoLoader(Stateful(8), 2, batch_size=4, steps_per_epoch=3, group=Group())
    with pytest.raises(pyecho.EchoError, match="save state_dict"):
        RunState(loader).state_dict()
