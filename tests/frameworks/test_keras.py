"""`to_keras` with each backend: keras_faces.py in a process of its own, as each has one backend."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")


@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_loader_feeds_keras(backend):
    pytest.importorskip(backend)
    faces = Path(__file__).with_name("keras_faces.py")
    chosen = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(faces)],
        cwd=faces.parent,
        env={**os.environ, **chosen},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
