"""The recipes for Keras in docs/ecosystem.md, as printed, with each backend."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

PAGE = Path(__file__).parents[2] / "docs" / "ecosystem.md"
GENERATOR, DATASET = re.findall(
    r"^```python no-run\n(.*?)^```$",
    PAGE.read_text().partition("\n## Keras 3\n")[2].partition("\n## ")[0],
    re.DOTALL | re.MULTILINE,
)
PROGRAM = """
import importlib
import sys

import keras
import numpy as np

ROWS = np.arange(50, dtype=np.float32)[:, None]
validation = ROWS, ROWS
taken = []


class Source:
    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([(row, row) for row in ROWS])

    def __len__(self):
        return len(ROWS)


def noted(batch, rng):
    taken.append(np.array(batch[0]))
    return batch


class Count(keras.callbacks.Callback):
    steps = losses = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1

    def on_epoch_end(self, epoch, logs=None):
        self.losses += "val_loss" in logs


class Sequential(keras.Sequential):
    def fit(self, *args, **options):
        return super().fit(*args, callbacks=[count], verbose=0, **options)


recipe, module = sys.argv[1:]
for built in (True, False):
    source, count = Source(), Count()
    options = {"augment": noted} if module == "pyecho" else {}
    options |= {"pad_last": True} if module == "pyecho.jax" else {}
    loader = importlib.import_module(module).EchoLoader(source, 2, batch_size=8, **options)
    layers = [keras.layers.Dense(1)]
    model = Sequential([keras.Input((1,)), *layers] if built else layers)
    model.compile("sgd", "mse")
    taken.clear()
    exec(recipe)
    assert count.steps == 3 * len(loader) == 39, count.steps
    assert count.losses == source.passes == 3
    assert loader.stats().fresh == 150
    assert loader.stats().batches == 39
    if taken:  # no batch was lost to a look
        assert np.bincount(np.concatenate(taken)[:, 0].astype(int)).tolist() == [6] * 50
"""


@pytest.mark.parametrize("module", ["pyecho", "pyecho.torch", "pyecho.jax"])
@pytest.mark.parametrize("backend", ["jax", "tensorflow", "torch"])
def test_recipe_trains_on_each_epoch_of_the_loader(backend, module):
    for library in (backend, module.rpartition(".")[2]):
        pytest.importorskip(library)
    chosen = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    recipe = DATASET if backend == "tensorflow" else GENERATOR
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error::UserWarning", "-c", PROGRAM, recipe, module],
        env={**os.environ, **chosen},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
