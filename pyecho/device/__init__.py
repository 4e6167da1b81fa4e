"""Loaders on devices: pinned memory, uploads, and echoing on the device.

To be read in this order: `place` (the options), `pipeline` (the ways there), `blocks` (native
copies of whole batches), `upload` (copies by a thread; with `leaves`, `tensors`), `pool` (echoing
there; with `tables`, `indices`), `runtime` (CUDA's functions).
"""
