"""Measurements behind ``pyecho bench``, each beside its limit in the same run.

To be read in this order: `command` (its options), `measurements` (what is measured), `gather`,
`sampling` (repeated timing), `row` (a result beside its limit), `report` (the table and figure).
"""
