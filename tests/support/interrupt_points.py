"""Ctrl-C at each point of Python code where CPython looks for signals."""

import dis
import functools
import inspect
import os
import signal
import sys
from itertools import pairwise
from pathlib import Path

from interrupts import unraisable_interrupts_dropped

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
    """Raises KeyboardInterrupt at points of pyecho's Python code where Ctrl-C may land.

    CPython looks for signals at the beginning of a function, after a call of a C function, and at
    a jump backwards; none comes to the main thread where it has blocked them.
    `gaps`: the points that raise, each counted from the last one. `reached` counts all points of
    the calls that `strikes` makes.
    """

    def __init__(self, *gaps, functions=()):
        self.left, self.reached = list(gaps), 0
        self._process = os.getpid()
        self._codes = {function.__code__ for function in functions}
        self._callers = set()  # frames that have just called a Python function

    def strikes(self, call):
        """Make a call; return True if it was not interrupted."""
        try:
            sys.settrace(self._trace)
            call()
        except KeyboardInterrupt:
            return False
        finally:
            sys.settrace(None)
        return True

    def _trace(self, frame, event, _):
        code = frame.f_code
        if event == "call":
            if not code.co_name.startswith("__"):
                self._callers.add(id(frame.f_back))
            ours = code in self._codes if self._codes else code.co_filename.startswith(PACKAGE)
            if not ours:
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            if not code.co_flags & inspect.CO_GENERATOR:  # close() of one looks for no signals
                self._reach()
        elif event == "opcode":
            after_call, backward = points_of(code)
            of_python = id(frame) in self._callers
            self._callers.discard(id(frame))
            if frame.f_lasti in backward or (frame.f_lasti in after_call and not of_python):
                self._reach()
        else:
            self._callers.discard(id(frame))
        return self._trace

    def _reach(self):
        if os.getpid() != self._process:
            return  # a worker that was forked meanwhile, which Ctrl-C does not reach
        if signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()):
            return
        self.reached += 1
        if self.left:
            self.left[0] -= 1
            if self.left[0] == 0:
                del self.left[0]
                raise KeyboardInterrupt


def taken_under(interrupts, iterator):
    """Return the rest of an iterator, asked again after each interrupt."""
    taken = []
    with unraisable_interrupts_dropped():
        for _ in range(3):
            # Batches that were taken before an interrupt are in there.
            if interrupts.strikes(functools.partial(taken.extend, iterator)):
                break
    return taken


@functools.cache
def points_of(code):
    """Return the offsets of instructions that follow a call, and of those that jump backwards."""
    instructions = list(dis.get_instructions(code))
    calls = ("CALL", "CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_EX", "CALL_FUNCTION_KW")
    after = {
        second.offset
        for first, second in pairwise(instructions)
        if first.opname in (*calls, "CALL_KW")
    }
    backward = {
        each.offset
        for each in instructions
        if "JUMP" in each.opname and isinstance(each.argval, int) and each.argval <= each.offset
    }
    return after, backward
