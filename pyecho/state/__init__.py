"""Saved states: a state that passes the checks is safe to use.

To be read in this order: `position` (what a state holds), `loaded` (reads values of any file by
type, and makes the digest), `check` (refuses a state that is damaged, contradicts itself, or has
other options), `items` (the items in it), `plain` (other objects as plain data).
"""
