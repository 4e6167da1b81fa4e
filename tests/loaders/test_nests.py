"""Nests of every kind: taken apart, put together as what they were, shared, watched, copied."""

import collections
import types

import numpy as np
import pytest
from drivers import batch_of
from hypothesis import given, settings
from hypothesis import strategies as st
from nest_kinds import KINDS, Node, OptreeNode, Pair, Sample

import pyecho

torch = pytest.importorskip("torch")

kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def rows(kind, count=3):
    return [kind.make(np.full(2, float(n)), {"n": n, "name": str(n)}) for n in range(count)]


def same(kind, node, like):
    return type(node) is type(like) and kind.rest(node) == kind.rest(like)


@kinds
def test_batches_are_split_and_put_together_again(kind):
    source = [kind.make(np.arange(6).reshape(3, 2), {"name": list("xyz")})] * 2
    [batch] = pyecho.EchoLoader(source, 1, batch_size=6, unbatch=True, shuffle_buffer=0)
    assert same(kind, batch, source[0])
    a, b = kind.parts(batch)
    assert a.tolist() == [[0, 1], [2, 3], [4, 5]] * 2
    assert b == {"name": list("xyzxyz")}


@kinds
def test_shared_items_are_what_they_were_with_read_only_arrays(kind):
    [item] = rows(kind, 1)
    first, second = pyecho.EchoLoader([item], 2)
    assert first is second
    assert same(kind, first, item)
    used, given = kind.parts(first)[0], kind.parts(item)[0]
    assert np.shares_memory(used, given)
    assert (used.flags.writeable, given.flags.writeable) == (False, True)


@kinds
def test_copies_are_what_the_items_were_and_private(kind):
    [item] = rows(kind, 1)
    for use in pyecho.EchoLoader([item], 2, copy=True):
        assert same(kind, use, item)
        a, b = kind.parts(use)
        a += 1
        b["n"] = "changed"
    assert kind.parts(item)[0].tolist() == [0, 0]
    assert kind.parts(item)[1]["n"] == 0


@kinds
def test_reserved_views_are_what_the_examples_are(kind):
    example = kind.make(np.zeros(2), 1)
    buffer = pyecho.EchoBuffer(pyecho.spec_of(example), batch_size=1, factor=1)
    with buffer.reserve() as view:
        assert same(kind, view, example)
        a, b = kind.parts(view)
        a[:], b[...] = 3, 4
    batch = next(iter(buffer))
    assert [part.tolist() for part in kind.parts(batch)] == [[[3, 3]], [4]]


@kinds
def test_mismatch_names_the_part(kind):
    good, bad = rows(kind, 1), kind.make(np.zeros(2), {"n": 0, "name": b"", "more": 1})
    for wrong, path in (
        (kind.make(np.zeros(3), {"n": 0, "name": ""}), f"item{kind.steps[0]}: expected float64"),
        (bad, f"item{kind.steps[1]}: expected a dict with keys ('n', 'name'), got dict with keys"),
        (3, "item: expected a "),
        ([1], "item: expected a "),
    ):
        with pytest.raises(pyecho.SpecMismatch) as raised:
            batch_of(*good, wrong)
        assert str(raised.value).startswith(path)


@kinds
def test_echo_mutated_names_the_part_that_was_changed_in_place_and_looking_is_none(kind):
    changes = [
        (f"item{kind.steps[0]}", lambda use: kind.parts(use)[0].add_(1)),
        (f"item{kind.steps[1]}['x']", lambda use: kind.parts(use)[1]["x"].add_(1)),
    ]
    if kind.mutable:
        changes.append((f"item{kind.steps[0]}", lambda use: kind.replace(use, np.ones(2))))
    for path, change in changes:
        uses = iter(pyecho.EchoLoader([kind.make(torch.zeros(2), {"x": torch.zeros(2)})], 3))
        for _ in range(2):
            use = next(uses)
            assert kind.parts(use)[0].sum() == 0
        change(use)
        with pytest.raises(pyecho.EchoMutated) as raised:
            next(uses)
        assert str(raised.value).startswith(f"{path} was changed in place")


# ---------------------------------------------------------------- what is a node, and what is not


def test_keys_may_come_in_another_order_and_dicts_of_other_types():
    batch = batch_of({"a": 1, "b": 2}, collections.OrderedDict(b=4, a=3), {"b": 6, "a": 5})
    assert (batch["a"].tolist(), batch["b"].tolist()) == ([1, 3, 5], [2, 4, 6])


def test_namedtuple_is_the_same_by_its_names():
    again = collections.namedtuple("Pair", ["a", "b"])
    swapped = collections.namedtuple("Pair", ["b", "a"])
    assert batch_of(Pair(1, 2), again(3, 4), (5, 6)).b.tolist() == [2, 4, 6]
    with pytest.raises(pyecho.SpecMismatch, match=r"item: expected a Pair of a, b, got Pair"):
        batch_of(Pair(1, 2), swapped(3, 4))


def test_context_of_a_registered_node_is_part_of_its_structure():
    with pytest.raises(pyecho.SpecMismatch, match="a context of 'km' instead of 'm'"):
        batch_of(OptreeNode(1, 2, "m"), OptreeNode(3, 4, "km"))


@pytest.mark.parametrize(
    "leaf",
    [
        "text",
        b"",
        None,
        np.str_("s"),
        {1, 2},
        range(2),
        collections.deque([1]),
        Sample,
        Node(1, 2, 3),
    ],
)
def test_leaf_of_any_other_type_travels_by_reference_and_arrives_in_a_list(leaf):
    batch = batch_of({"x": 1, "it": leaf}, {"x": 2, "it": leaf})
    for column in (batch["it"], batch_of(leaf, leaf)):
        assert type(column) is list
        assert all(it is leaf for it in column)


class Sealed(collections.abc.Mapping):
    """A mapping that can neither be copied nor made of a dict."""

    def __init__(self, *, a):
        self._a = a

    def __getitem__(self, key):
        return {"a": self._a}[key]

    def __iter__(self):
        return iter("a")

    def __len__(self):
        return 1


def test_mapping_that_cannot_be_made_again_is_refused_as_an_example_and_passes_as_an_item():
    with pytest.raises(pyecho.ConfigError, match=r"a Sealed cannot be made of new children.*dict"):
        batch_of(Sealed(a=np.zeros(2)))
    item = Sealed(a={"x": np.zeros(2), "t": torch.zeros(2)})
    uses = iter(pyecho.EchoLoader([item], 2))
    assert next(uses) is item
    item["a"]["t"].add_(1)
    with pytest.raises(pyecho.EchoMutated, match=r"item\['a'\]\['t'\]"):
        next(uses)
    copy = next(iter(pyecho.EchoLoader([item], 1, copy=True)))
    assert copy["a"]["x"] is not item["a"]["x"]


@pytest.mark.parametrize(
    "arguments", [{}, {"copy": True}, {"batch_size": 1}, {"batch_size": 1, "unbatch": True}]
)
def test_items_that_contain_themselves_are_refused(arguments):
    item = {"x": np.zeros(2), "parts": []}
    item["parts"] += [item] * 3
    with pytest.raises(pyecho.ConfigError, match="an item contains itself"):
        list(pyecho.EchoLoader([item], 1, **arguments))


def test_keys_that_are_nan_are_the_same_in_every_item():
    source = [{float("nan"): n, "x": {np.float32("nan"): np.zeros(2)}} for n in range(4)]
    [batch] = pyecho.EchoLoader(source, 1, batch_size=4, shuffle_buffer=0)
    (_, numbers), (_, inner) = batch.items()
    assert numbers.tolist() == [0, 1, 2, 3]
    assert next(iter(inner.values())).shape == (4, 2)
    with pytest.raises(
        pyecho.SpecMismatch, match=r"expected a dict with keys \(nan,\), got dict with"
    ):
        batch_of({float("nan"): 1}, {0.0: 1})
    assert len(list(pyecho.EchoLoader(source, 2))) == 8


@pytest.mark.parametrize("nothing", [{}, [], {"a": {}, "b": ()}])
def test_item_without_a_leaf_passes_as_it_is_and_is_refused_as_an_example(nothing):
    assert list(pyecho.EchoLoader([nothing], 2)) == [nothing, nothing]
    with pytest.raises(pyecho.ConfigError, match="at least one leaf"):
        batch_of(nothing)


# ---------------------------------------------------------------- registered types


def test_register_node_takes_children_by_number_where_they_have_no_names():
    class Pairs(Node):
        pass

    def unflatten(unit, children):
        return Pairs(*children, unit)

    pyecho.register_node(Pairs, lambda node: ((node.a, node.b), node.unit), unflatten)
    batch = batch_of(Pairs(1, 2, "m"), Pairs(3, 4, "m"))
    assert type(batch) is Pairs
    assert batch.b.tolist() == [2, 4]
    with pytest.raises(pyecho.SpecMismatch, match=r"item\[1\]: expected int64"):
        batch_of(Pairs(1, 2, "m"), Pairs(3, 4.5, "m"))
    with pytest.raises(pyecho.ConfigError, match="Pairs is registered already"):
        pyecho.register_node(Pairs, list, unflatten)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((Pair(1, 2), list, list), "needs a class"),
        ((Sample, None, list), "flatten must be a function"),
        ((Sample, list, "list"), "unflatten must be a function"),
        ((collections.OrderedDict, list, list), "takes dicts, lists, tuples"),
        ((Pair, list, list), "takes dicts, lists, tuples"),
        ((np.ndarray, list, list), "takes dicts, lists, tuples"),
        ((torch.Tensor, list, list), "takes dicts, lists, tuples"),
    ],
)
def test_register_node_refuses_what_cannot_be_registered(arguments, message):
    with pytest.raises(pyecho.ConfigError, match=message):
        pyecho.register_node(*arguments)


@pytest.mark.parametrize("flattened", [3, (), ([1],), ([1, 2], None, ["a"]), (1, None)])
def test_register_node_tells_what_flatten_must_return(flattened):
    class Wrong:
        pass

    pyecho.register_node(Wrong, lambda node: flattened, lambda context, children: Wrong())
    with pytest.raises(pyecho.ConfigError, match=r"flatten\(\) of Wrong must return"):
        batch_of(Wrong())


def test_type_in_a_namespace_of_optree_is_a_leaf():
    optree = pytest.importorskip("optree")

    class Private(Node):
        pass

    flatten, unflatten = lambda node: ((node.a,), None), lambda _, children: children
    optree.register_pytree_node(Private, flatten, unflatten, namespace="pyecho-tests")
    assert isinstance(batch_of(Private(1, 2, "m")), list)


# ---------------------------------------------------------------- objects


def test_object_that_is_no_node_passes_as_it_is_and_copy_is_the_remedy():
    item = types.SimpleNamespace(x=np.zeros(2), t=torch.zeros(2))
    uses = iter(pyecho.EchoLoader([item], 2))
    assert next(uses) is item
    item.x += 1
    item.t.add_(1)
    assert next(uses) is item
    first, second = pyecho.EchoLoader([item], 2, copy=True)
    first.x[:] = first.t[:] = 5
    assert (second.x.tolist(), second.t.tolist()) == ([1, 1], [1, 1])


def test_tensors_that_an_encoding_replaces_in_place_are_named_with_to():
    item = KINDS["UserDict like BatchEncoding"].make(torch.zeros(2), 0)
    uses = iter(pyecho.EchoLoader([item], 2))
    next(uses)
    item.data["a"] = torch.clone(item.data["a"])
    with pytest.raises(pyecho.EchoMutated, match=r"item.to\(device\) of transformers' BatchEnc"):
        next(uses)


# ---------------------------------------------------------------- any nest of them

leaves = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from([(), (2,), (2, 3)]).map(np.ones),
)
nests = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda kind, a, b: kind.make(a, b), st.sampled_from(list(KINDS.values())), inner, inner
    ),
    max_leaves=4,
)


def equal(kind_of_leaf, node, like):
    for kind in KINDS.values():
        if type(like) is type(kind.make(0, 0)):
            return same(kind, node, like) and all(
                equal(kind_of_leaf, *pair)
                for pair in zip(kind.parts(node), kind.parts(like), strict=True)
            )
    return kind_of_leaf(node, like)


@kinds
@settings(max_examples=15)
@given(data=st.data())
def test_any_nest_comes_back_with_a_batch_axis(kind, data):
    example = kind.make(data.draw(nests), data.draw(nests))
    batch = batch_of(example, example, example)
    assert equal(lambda leaf, like: np.array_equal(np.array(leaf), [like] * 3), batch, example)
    [again] = pyecho.EchoLoader([example], 1)
    assert equal(lambda leaf, like: np.array_equal(leaf, like), again, example)


def test_keys_that_are_nan_are_told_apart_by_their_order():
    source = [{float("nan"): n, float("nan"): 10 + n} for n in range(3)]
    [batch] = pyecho.EchoLoader(source, 1, batch_size=3, shuffle_buffer=0)
    assert [column.tolist() for column in batch.values()] == [[0, 1, 2], [10, 11, 12]]
