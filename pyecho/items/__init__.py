"""Items: nests, their specs, rows and shared storage. Nothing here reads a source.

To be read in this order: `spec` (a leaf, and what a library's arrays are), `nodes` (what a nest is
made of; also `tensordicts`), `nest` (the walks over it), `rows` (batches that are split), `ragged`
(leaves of any size), `operation` and `programs` (the option `ops`), `sharing` (batch echoing).
"""
