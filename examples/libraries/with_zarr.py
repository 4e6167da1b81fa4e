"""Columns of a zarr group, and a state that goes on by index."""

import numpy as np
import zarr

import pyecho

group = zarr.open_group("images.zarr", mode="w")
group.create_array("image", shape=(256, 8, 8), chunks=(32, 8, 8), dtype="float32")
group.create_array("label", shape=(256,), dtype="int64")
group["image"][:], group["label"][:] = np.random.default_rng(0).random((256, 8, 8)), np.arange(256)

group = zarr.open_group("images.zarr", mode="r")
loader = pyecho.EchoLoader(group, 3, batch_size=64, shuffle_buffer=128)
batches = iter(loader)
labels = next(batches)["label"]
state = loader.state_dict()  # rows are read by index, so that it goes on where it was
resumed = pyecho.EchoLoader(group, 3, batch_size=64, shuffle_buffer=128)
resumed.load_state_dict(state)
labels = np.concatenate([labels, *(batch["label"] for batch in resumed)])
assert np.bincount(labels).tolist() == [3] * 256
