"""Advice on the echo factor: speed of a pipeline at each factor, and its limit.

To be read in this order: `times` (Eq. 1), `remedies` (changes, and what they are worth), `model`
(the advice that follows), `measure` (what runs to have the times), `command`.
"""
