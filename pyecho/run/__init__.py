"""The run of a loader, from its first epoch to its end.

To be read in this order: `run` (any thread may call), `epochs` (begin, end, leave), `flow` (passes
that flow into each other), `reading` (what is read; with `located`, `again`, `filling`), `extent`
(how far), `pipeline` (nodes in a row), `host` (the first node), `link` (the others; with `augment`,
`examples`), `threads`, `context`, `saving`. Beside the way: `trace`, `progress`.
"""
