"""Ctrl-C at each point of Python code where CPython looks for signals."""

import dis
import sys
from itertools import pairwise
from types import CodeType


def nothing_is_lost(make, expected, *functions):
    """Consume iterators of `make()`, each interrupted once: at another point of the functions.

    CPython looks for signals where a function starts, behind a call and at a backward jump.
    Returns the number of points; each iterator must yield what is expected, all in all.
    """
    points = {function.__code__: points_of(function.__code__) for function in functions}
    left = 0

    def trace(frame, event, _):
        nonlocal left
        if frame.f_code not in points:
            return None
        frame.f_trace_opcodes = True
        if event == "call" or (event == "opcode" and frame.f_lasti in points[frame.f_code]):
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    point = 0
    while left <= 0:
        point += 1
        left = point
        found, iterator = [], make()
        sys.settrace(trace)
        try:
            found.extend(iterator)  # what was taken before an interrupt is in there
        except KeyboardInterrupt:
            sys.settrace(None)
            found.extend(iterator)
        finally:
            sys.settrace(None)
        assert found == expected, f"point {point}"
    return point - 1


def points_of(code: CodeType) -> set[int]:
    """Return the offsets of the instructions behind calls and backward jumps."""
    points = set()
    for before, instruction in pairwise(dis.get_instructions(code)):
        if before.opname.startswith("CALL"):
            points.add(instruction.offset)
        elif before.opname.startswith("JUMP_BACKWARD"):
            points.add(before.argval)
    return points
