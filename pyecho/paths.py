"""Paths of the files for native code: headers, libpyecho, and its CMake package."""

from __future__ import annotations

import sys
from pathlib import Path

from pyecho._core import EchoError


def get_include() -> str:
    """Return the folder with ``pyecho/pyecho.h`` and ``pyecho/pyecho.hpp``, for ``-I``."""
    return str(_found("include", "pyecho/pyecho.h"))


def get_cmake_dir() -> str:
    """Return the folder with ``pyecho-config.cmake``, for ``-Dpyecho_DIR=``."""
    return str(_found("lib/cmake/pyecho", "pyecho-config.cmake"))


def get_library() -> str:
    """Return the path of libpyecho, the shared library, for linkers, ctypes and Numba."""
    name = "libpyecho.dylib" if sys.platform == "darwin" else "libpyecho.so"
    return str(_found("lib", name) / name)


def _found(name: str, file: str) -> Path:
    folder = Path(__file__).parent / name
    if not (folder / file).exists():
        raise EchoError(
            f"there is no {file} in {folder}: this pyecho was not installed from a wheel with its "
            "library; install it with pip install ."
        )
    return folder
