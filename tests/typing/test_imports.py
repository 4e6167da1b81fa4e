"""Modules of pyecho import in one direction, so that one can read them from the bottom up."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pyecho

ROOT = Path(pyecho.__file__).parent
LAYERS = ("items", "source", "state", "buffer", "run", "device", "loader", "torch")
"""Folders and modules: each may import the ones before it."""


def module_of(path):
    name = ".".join(("pyecho", *path.relative_to(ROOT).with_suffix("").parts))
    return name.removesuffix(".__init__")


MODULES = {module_of(path): path for path in (*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi"))}


def run_at_import(body):
    """Yield the import statements that run when a module is imported, none for type checkers."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from run_at_import(statement.orelse)
        elif not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in ("body", "handlers", "orelse", "finalbody"):
                yield from run_at_import(getattr(statement, part, ()))


def imported_by(module):
    """Return the modules of pyecho that a module imports when it is imported itself."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found = set()
    for statement in run_at_import(ast.parse(path.read_text()).body):
        if isinstance(statement, ast.Import):
            found.update(alias.name for alias in statement.names)
            continue
        parents = package.split(".")[: len(package.split(".")) + 1 - statement.level]
        base = ".".join((*parents, statement.module or "")) if statement.level else statement.module
        for alias in statement.names:
            whole = f"{base.rstrip('.')}.{alias.name}"
            found.add(whole if whole in MODULES else base)
    return found & MODULES.keys() - {module}


IMPORTS = {module: imported_by(module) for module in MODULES}


def test_imports_of_modules_are_in_no_circle():
    assert IMPORTS["pyecho.buffer"] > {"pyecho._core", "pyecho.config", "pyecho.items.spec"}
    TopologicalSorter(IMPORTS).prepare()  # CycleError names the circle


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_of_a_layer_are_of_layers_below_it(layer):
    above = LAYERS[LAYERS.index(layer) + 1 :]
    for module, imported in IMPORTS.items():
        if module.split(".")[1:2] == [layer]:
            wrong = [
                name for name in imported if name.split(".")[1:2] and name.split(".")[1] in above
            ]
            assert not wrong, f"{module} imports {wrong}"
