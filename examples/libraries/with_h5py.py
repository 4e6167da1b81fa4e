"""Columns of an HDF5 file, read by chunk."""

import h5py
import numpy as np

import pyecho

with h5py.File("images.h5", "w") as file:
    file["image"] = np.random.default_rng(0).random((256, 8, 8), "float32")
    file["label"] = np.arange(256) % 10

with h5py.File("images.h5") as file:
    columns = {"image": file["image"], "label": file["label"]}
    loader = pyecho.EchoLoader(columns, 3, batch_size=64, shuffle_buffer=128)
    weights, steps = np.zeros((10, 64), "float32"), 0
    for batch in loader:
        rows = batch["image"].reshape(-1, 64)
        scores = np.exp(rows @ weights.T)
        scores /= scores.sum(1, keepdims=True)
        weights += 0.01 * (np.eye(10, dtype="float32")[batch["label"]] - scores).T @ rows
        steps += 1
    assert steps == len(loader) == 12
