"""Saved states: a state that passes the checks is safe to use.

To be read in this order: `position` (what a state holds), `walk` (values that were loaded, their
types and digest), `check` (a state as a whole), `items` (the items in it), `plain` (other objects
as plain data).
"""
