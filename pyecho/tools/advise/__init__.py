"""Advice on the echo factor: speed of a pipeline at each factor, and its limit.

To be read in this order: `model` (Eq. 1, and the records of an advice), `remedies` (changes, and
what they are worth), `measure` (what runs to have the times), `command`.
"""
