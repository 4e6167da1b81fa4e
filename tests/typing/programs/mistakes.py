"""Mistakes that a type checker must find: each line with `wrong` and no other."""

import pyecho

pyecho.EchoLoader([1], "2")  # wrong
pyecho.EchoLoader([1], batch_size="4")  # wrong
pyecho.EchoLoader([1], shufle_buffer=4)  # wrong
pyecho.EchoLoader([1], augment=lambda batch: batch)  # wrong
pyecho.EchoBuffer(pyecho.Field((), int))  # wrong
pyecho.EchoBuffer(pyecho.Field((), int), batch_size=1).put()  # wrong
pyecho.EchoStats().fresh = 3  # wrong
print(pyecho.Nothing)  # wrong
pyecho.EchoLoader([1], 2.5, batch_size=4)
