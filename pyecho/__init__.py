"""pyecho: a native data-echoing stage for training pipelines.

Data echoing takes each example or batch from a slow source once and hands it out several times,
shuffled, so that an accelerator that would idle trains on. See `EchoLoader` to wrap a source, and
`EchoBuffer` to embed the stage in a loader of your own. `pyecho.torch` has the loader for PyTorch.
"""

# Inside: `loader` on `base_loader`; `config` has the options, `fitted` what follows from them for
# one run; `source` reads, `items` takes items apart, `run` serves epochs, `state` saves them,
# `workers` make items, `device` brings them to a GPU.

from pathlib import Path

if Path(__file__).with_name("echo.py").exists():
    raise ImportError(
        "two projects share the folder pyecho: data-echoing, which you import here, and PyPI's "
        "pyecho, which has overwritten parts of it. Run pip uninstall pyecho data-echoing, and "
        "install data-echoing again."
    )

try:
    from pyecho import _core
except ImportError as error:
    if "sub-interpreter" in str(error):
        raise
    raise ImportError(
        "pyecho's native part could not be imported. If Python runs in the source folder of "
        "pyecho, that folder hides the installed package: run from another folder, use the "
        "`pyecho` command, or start Python with -P. Otherwise install pyecho again from its "
        "source folder (pip install .)."
    ) from error

from typing import TYPE_CHECKING

from pyecho._core import (
    BufferExhausted,
    CheckpointError,
    Closed,
    ConfigError,
    CudaError,
    EchoError,
    EchoMutated,
    PutTimeout,
    SpecMismatch,
    WorkerError,
)
from pyecho.adaptive import Adaptive
from pyecho.buffer import EchoBuffer
from pyecho.items.nest import spec_of
from pyecho.items.nodes import register_node
from pyecho.items.spec import EchoInfo, Field, Padded, Ragged
from pyecho.loader import EchoLoader
from pyecho.run.trace import trace
from pyecho.stats import EchoStats

_MODULES = ("cuda", "jax", "ops", "torch")
_LAZY = {
    "Advice": "pyecho.tools.advise.model",
    "get_cmake_dir": "pyecho.paths",
    "get_include": "pyecho.paths",
    "get_library": "pyecho.paths",
    "Worth": "pyecho.worth",
    "WorthEstimate": "pyecho.worth",
}
"""Modules of names that few programs use. They and `_MODULES` are imported with the first use."""

if TYPE_CHECKING:
    from pyecho import cuda, ops
    from pyecho.paths import get_cmake_dir, get_include, get_library
    from pyecho.tools.advise.model import Advice
    from pyecho.worth import Worth, WorthEstimate
else:  # otherwise every name would be right for type checkers

    def __getattr__(name):
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LAZY[name]), name)


__version__: str = _core.build_info()["version"]


def __dir__() -> list[str]:
    """Return what completion shows: only what is there."""
    from importlib.machinery import PathFinder

    return [*__all__, *(name for name in ("jax", "torch") if PathFinder.find_spec(name))]


__all__ = [
    "Adaptive",
    "Advice",
    "BufferExhausted",
    "CheckpointError",
    "Closed",
    "ConfigError",
    "CudaError",
    "EchoBuffer",
    "EchoError",
    "EchoInfo",
    "EchoLoader",
    "EchoMutated",
    "EchoStats",
    "Field",
    "Padded",
    "PutTimeout",
    "Ragged",
    "SpecMismatch",
    "WorkerError",
    "Worth",
    "WorthEstimate",
    "__version__",
    "cuda",
    "get_cmake_dir",
    "get_include",
    "get_library",
    "ops",
    "register_node",
    "spec_of",
    "trace",
]
