"""The demonstration behind ``pyecho demo``: slow source, fast trainer, echoing in between.

To be read in this order: `command` (its options), `experiment` (the whole), `server` and `source`
(images over a slow line), `images`, `train` (to a target), `report` (the table and figure).
"""
