"""Sub-interpreters are refused at once."""

import importlib
import textwrap

import pytest
from scripts import run


@pytest.mark.parametrize("name", ["pyecho", "pyecho._core"])
def test_import_in_a_subinterpreter_says_why_it_fails(name):
    for module in ("_interpreters", "_xxsubinterpreters"):
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        break
    else:
        pytest.skip("this Python has no module for sub-interpreters")
    code = f"""
        import {module} as interpreters
        other = interpreters.create()
        code = f"import sys; sys.path[:] = {{sys.path!r}}; import {name}"
        try:
            if hasattr(interpreters, "exec"):
                print(interpreters.exec(other, code).formatted)
            else:
                interpreters.run_string(other, code)
        except Exception as error:
            print(error)
        interpreters.destroy(other)
    """
    assert "does not work in a sub-interpreter" in run(textwrap.dedent(code))
