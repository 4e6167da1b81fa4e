"""Checks of numbers and names that a caller passes."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import field, fields
from typing import Any, TypeVar

import numpy as np

from pyecho._core import ConfigError

MAX_USES = 2**32 - 1

MOST_COUNTED = 2**62
"""Of anything."""


def checked_int(name: str, value: Any, minimum: int, maximum: int) -> int:
    """Return `value` as an int within bounds, or raise `ConfigError`."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name} must be an int, got {value!r}")
    if not minimum <= number <= maximum:
        raise ConfigError(f"{name} must be at least {minimum} and at most {maximum}, got {number}")
    return number


def bounded(default: int | None, minimum: int, maximum: int) -> Any:
    """Return the field of a whole number; None is one only if it is the default."""
    return field(default=default, metadata={"minimum": minimum, "maximum": maximum})


def one_of(*known: Any, default: Any) -> Any:
    """Return the field of an option that has one of these values."""
    return field(default=default, metadata={"known": known})


def flag() -> Any:
    """Return the field of an option that is True or False."""
    return one_of(True, False, default=False)


def called(call: str) -> Any:
    """Return the field of a function, or None; `call` says of what."""
    return field(default=None, metadata={"call": call})


def check_fields(record: Any) -> None:
    """Have values be what the fields of a record say; bools and whole numbers those of Python."""
    for option in fields(record):
        name, value, rule = option.name, getattr(record, option.name), option.metadata
        if "call" in rule:
            if value is not None and not callable(value):
                raise ConfigError(f"{name} must be a function of {rule['call']}, got {value!r}")
        elif "known" in rule:
            if isinstance(value, np.bool_):
                value = bool(value)
                object.__setattr__(record, name, value)
            if not isinstance(value, bool | str | None) or value not in rule["known"]:
                *others, last = map(repr, rule["known"])
                raise ConfigError(f"{name} must be {', '.join(others)} or {last}, got {value!r}")
        elif rule and (value is not None or option.default is not None):
            object.__setattr__(record, name, checked_int(name, value, **rule))


def plain(value: Any) -> Any:
    """Return numbers of other libraries as Python's, several as a tuple; the rest as it is.

    So values that mean the same are equal, and written alike.
    """
    times = np.timedelta64 | np.datetime64
    if hasattr(value, "tolist") and not isinstance(value, type | times):
        value = value.tolist()
    if isinstance(value, list | tuple | range):
        return tuple(map(plain, value))
    for wide, kind in ((np.floating, float), (np.complexfloating, complex)):  # longdouble
        value = kind(value) if isinstance(value, wide) else value
    return value


def as_float(value: Any) -> float:
    """Return any kind of number as a float, NaN for everything else."""
    given = plain(value)
    if not isinstance(given, bool | str | bytes | bytearray | np.generic):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(given)
    return math.nan


def checked_factor(value: Any) -> float:
    """Return the echo factor as a float >= 1, or raise `ConfigError`."""
    if isinstance(value, str) and value == "auto":
        raise ConfigError(
            'factor="auto" is gone: pass a number, or pyecho.Adaptive(max=8); '
            "pyecho.Worth().estimate().best_factor(R) and loader.advise(step, worth=worth) say "
            "which"
        )
    number = as_float(value)
    if not math.isfinite(number) or number < 1 or number >= MAX_USES:
        raise ConfigError(
            f"factor must be a number of at least 1 (1 means no echoing) and below {MAX_USES}, "
            f"got {value!r}"
        )
    return number


Init = TypeVar("Init", bound=Callable[..., None])


def with_checked_names(init: Init) -> Init:
    """Have `__init__`, all of whose options are named, refuse others by `refuse_unknown`."""
    known = inspect.signature(init).parameters

    @functools.wraps(init)
    def checked(self: object, *args: Any, **options: Any) -> None:
        refuse_unknown(type(self), options.keys() - known)
        init(self, *args, **options)

    return checked  # type: ignore[return-value]


def refuse_unknown(owner: type[Any], names: Iterable[str]) -> None:
    """Raise `TypeError` for the first of these names, none of which is an option of `owner`."""
    name = min(names, default=None)
    if name is None:
        return
    import difflib  # slow to import

    inits = [vars(each).get("__init__") for each in owner.__mro__]
    options = dict.fromkeys(
        each.name
        for init in filter(inspect.isfunction, inits)
        for each in inspect.signature(init).parameters.values()
        if each.name != "self" and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )
    near = difflib.get_close_matches(name, options, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(options)}"
    for having, instead in _GONE.get(name, {}).items():
        if having in ("", *options) or hasattr(owner, having):
            hint = instead
            break
    raise TypeError(f"{owner.__name__}() got an unexpected keyword argument {name!r}; {hint}")


_OF_DATA_LOADERS = "batch_sampler generator persistent_workers prefetch_factor timeout"

_GONE = {
    "burst": {"slots_ahead": "it is called slots_ahead="},
    "capacity": {"shuffle_buffer": "it is called shuffle_buffer="},
    "device": {"": "pyecho.torch.EchoLoader has it"},
    "flatten": {"unbatch": 'pass unbatch="lists"', "put": "put() each example of a list"},
    "group": {"": "pyecho.torch.EchoLoader has it"},
    "leases": {"held": "it is called held="},
    "memory": {
        "pin_memory": "pass pin_memory=True (pinned), False (pageable) or None (as the device "
        "needs it)",
        "allocate": "pass allocate=, a function that returns such memory",
    },
    "pad": {
        "fields": "give the leaf a pyecho.Field(..., pad=), in fields=",
        "spec": "give the leaf a pyecho.Field(..., pad=), in the spec",
    },
    "retries": {
        "num_workers": "an item whose worker process died is made once more, then WorkerError "
        "names it"
    },
    "sharding": {"": "pyecho.jax.EchoLoader has it"},
    "worth": {"advise": "call loader.advise(step, worth=worth), which says what factor to pass"},
}
"""Arguments that are elsewhere or gone, and what to do where there is this option or method."""

for _name, _now, _value in (
    ("device_augment", "augment", "..."),
    ("device_dtype", "dtype", "..."),
    ("echo_on", "echo", "True"),
    ("max_device_bytes", "max_bytes", "..."),
):
    _pass = f'pass device=pyecho.torch.Device("cuda:0", {_now}={_value})'
    _there = {"echo": f"it is called {_now}=", "device": _pass}
    _GONE[_name] = _there | {"": f"{_pass} to pyecho.torch.EchoLoader"}

for _name in _OF_DATA_LOADERS.split():
    _GONE[_name] = {"": "pass it to a torch.utils.data.DataLoader, and that as the source"}
