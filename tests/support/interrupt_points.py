"""Ctrl-C at each point of Python code where CPython looks for signals."""

import dis
import functools
import inspect
import sys
from itertools import pairwise
from pathlib import Path
from types import CodeType

import pyecho

PACKAGE = str(Path(pyecho.__file__).parent)


def nothing_is_lost(make, expected, *functions, plain=list):
    """Consume iterators of `make()`, each interrupted once, at another point of pyecho's code.

    `functions`: the ones whose points count, if not all do. Each iterator must yield what is
    expected, all in all, as `plain` shows it. Returns the number of points.
    """
    point, reached = 0, True
    while reached:
        point += 1
        interrupts = Interrupts(point, functions=functions)
        assert plain(taken_under(interrupts, make())) == expected, f"point {point}"
        reached = not interrupts.left
    return point - 1


class Interrupts:
    """Raises KeyboardInterrupt at these points of pyecho's Python code, counted from the last."""

    def __init__(self, *gaps, functions=()):
        self.left = list(gaps)
        self.points = functools.cache(points_of)
        self.codes = {function.__code__ for function in functions}

    def __call__(self, frame, event, _):
        code = frame.f_code
        traced = code in self.codes if self.codes else code.co_filename.startswith(PACKAGE)
        if not traced or in_finalizer(frame):
            return None
        frame.f_trace_opcodes = True
        # The call of a generator may be its close(), where CPython looks for no signal.
        begins = event == "call" and not code.co_flags & inspect.CO_GENERATOR
        at_point = begins or (event == "opcode" and frame.f_lasti in self.points(code))
        if at_point and self.left:
            self.left[0] -= 1
            if self.left[0] == 0:
                del self.left[0]
                raise KeyboardInterrupt
        return self


def taken_under(interrupts, iterator):
    """Return what an iterator still has, asked again after each interrupt."""
    taken = []
    for _ in range(3):
        sys.settrace(interrupts)
        try:
            taken.extend(iterator)  # what was taken before an interrupt is in there
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
    return taken


def in_finalizer(frame):
    """Return True in a __del__, where Python reports exceptions and goes on."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def points_of(code: CodeType) -> set[int]:
    """Return the offsets of the instructions behind calls and backward jumps."""
    points = set()
    for before, instruction in pairwise(dis.get_instructions(code)):
        if before.opname.startswith("CALL"):
            points.add(instruction.offset)
        elif before.opname.startswith("JUMP_BACKWARD"):
            points.add(before.argval)
    return points
