"""The work as each contestant does it. Each file is imported in its own environment only.

A function here is a context manager of an iterator: it is entered before the warm-up and left after
the clock has stopped. Functions named `examples` yield batches of echoed examples, those named
`batches` yield batches echoed as they are.
"""
