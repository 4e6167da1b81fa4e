"""The buffer, as a user embeds it."""

import numpy as np

import pyecho

spec = {"x": pyecho.Field((3,), np.float32), "y": pyecho.Field((), "int64")}
other = pyecho.spec_of({"x": np.zeros(3)})
buffer = pyecho.EchoBuffer(spec, batch_size=2, factor=2, shuffle_buffer=4, held=3, max_bytes=None)
try:
    buffer.put({"x": np.zeros(3, np.float32), "y": 1}, timeout=1.5)
    buffer.put_batch({"x": np.zeros((2, 3), np.float32), "y": np.arange(2)})
    with buffer.reserve(timeout=1) as views:
        views["x"][...] = 1
    reservation = buffer.reserve()
    reservation.abort()
except pyecho.PutTimeout as error:
    buffer.fail(error)
except (pyecho.SpecMismatch, pyecho.Closed, pyecho.BufferExhausted, pyecho.EchoMutated):
    buffer.stop()
finally:
    buffer.close()
for batch in buffer:
    print(batch["x"])
shape: tuple[int, ...] = pyecho.Field(3, "f4").shape
occupancy: float = buffer.stats().occupancy
