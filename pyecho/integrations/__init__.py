"""Glue that follows other libraries, one file each; nothing else of pyecho imports it.

`accelerate` has a loader of its own, on which `transformers` builds; `lerobot` reads episodes;
`lightning` logs; `tf` makes a `tf.data.Dataset`.
"""
