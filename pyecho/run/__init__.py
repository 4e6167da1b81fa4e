"""The run of a loader, from its first epoch to its end.

To be read in this order: `run` (any thread may call), `epochs` (begin, end, leave: where Ctrl-C in
a beginning is undone), `flow` (passes that flow into each other), `reading` (what is read; with
`seek`, `reread`, `filling`), `extent` (how far passes go), `ranks` (agree on that once an epoch),
`pipeline` (the stages in a row), `host` (the first stage, in host memory), `link` (the stages after
it; with `augment`, `examples`), `threads`, `context`, `saving`. Apart: `trace`, `progress`.
"""
