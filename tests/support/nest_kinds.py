"""Every kind of node that a nest can have, each made of two parts."""

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import optree

import pyecho

Pair = collections.namedtuple("Pair", ["a", "b"])


class Encoding(collections.UserDict):
    """As BatchEncoding of Hugging Face: arguments, attributes and indexing of its own."""

    def __init__(self, data, unit):
        super().__init__(data)
        self.unit = unit

    def __getitem__(self, key):
        return self.data[key] if isinstance(key, str) else [self.unit][key]

    def __getattr__(self, name):
        if name == "data":  # copies ask before there is any
            raise AttributeError(name)
        return self.data[name]


@dataclasses.dataclass
class Sample:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: Any
    b: Any


@dataclasses.dataclass
class Derived:
    """Has an `__init__` that must be called once for each example, and for no batch."""

    a: Any
    b: Any = dataclasses.field(init=False)
    unset: Any = dataclasses.field(init=False)
    scale: dataclasses.InitVar[int] = 2

    def __post_init__(self, scale):
        self.a, self.b = self.a
        self.unit = scale * "m"


class Node:
    """Registered below; `unit` is its context."""

    def __init__(self, a, b, unit):
        self.a, self.b, self.unit = a, b, unit


class RegisteredNode(Node):
    pass


class OptreeNode(Node):
    pass


pyecho.register_node(
    RegisteredNode,
    lambda node: ([node.a, node.b], node.unit, ["a", "b"]),
    lambda unit, children: RegisteredNode(*children, unit),
)
optree.register_pytree_node(
    OptreeNode,
    lambda node: ((node.a, node.b), node.unit, "ab"),
    lambda unit, children: OptreeNode(*children, unit),
    path_entry_type=optree.GetAttrEntry,
    namespace=getattr(optree.registry, "__GLOBAL_NAMESPACE"),
)


class Kind(NamedTuple):
    make: Callable[[Any, Any], Any]
    steps: tuple[str, str]
    """Names of the parts in messages."""
    rest: Callable[[Any], Any] = type
    """Return a common trait of a batch and its examples, beside the type."""
    mutable: bool = True

    def parts(self, node):
        if isinstance(node, list | tuple):
            return tuple(node)
        return (node["a"], node["b"]) if hasattr(node, "keys") else (node.a, node.b)

    def replace(self, node, part):
        """Put `part` in the place of `a`."""
        if hasattr(node, "keys"):
            node["a"] = part
        elif isinstance(node, list):
            node[0] = part
        else:
            node.a = part


KEYS, NAMES, NUMBERS = ("['a']", "['b']"), (".a", ".b"), ("[0]", "[1]")


def unit(node):
    return node.unit


KINDS = {
    "dict": Kind(lambda a, b: {"a": a, "b": b}, KEYS),
    "OrderedDict": Kind(lambda a, b: collections.OrderedDict(a=a, b=b), KEYS),
    "defaultdict": Kind(
        lambda a, b: collections.defaultdict(list, a=a, b=b), KEYS, lambda d: d.default_factory
    ),
    "UserDict like BatchEncoding": Kind(lambda a, b: Encoding({"a": a, "b": b}, "m"), KEYS, unit),
    "MappingProxyType": Kind(
        lambda a, b: types.MappingProxyType({"a": a, "b": b}), KEYS, mutable=False
    ),
    "list": Kind(lambda a, b: [a, b], NUMBERS),
    "tuple": Kind(lambda a, b: (a, b), NUMBERS, mutable=False),
    "namedtuple": Kind(Pair, NAMES, mutable=False),
    "dataclass": Kind(Sample, NAMES),
    "frozen dataclass with slots": Kind(Slotted, NAMES, mutable=False),
    "dataclass with fields of its own making": Kind(lambda a, b: Derived((a, b)), NAMES, unit),
    "registered": Kind(lambda a, b: RegisteredNode(a, b, "m"), NAMES, unit),
    "optree": Kind(lambda a, b: OptreeNode(a, b, "m"), NAMES, unit),
}
