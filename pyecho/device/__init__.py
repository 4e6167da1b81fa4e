"""Loaders on devices: pinned memory, what crosses, and echoing on the device.

To be read in this order: `place` (the options), `pipeline` (the ways there), `handover` (how items
cross; with `crossing`, `pinned`, `memory`, `leaves`, `tensors`), `blocks` (batches that native
threads send), `pool` (echoing there; with `tables`), `runtime` (CUDA's functions).
"""
