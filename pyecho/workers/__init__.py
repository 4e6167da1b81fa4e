"""Workers that make items of a source by index, in processes or threads.

::

    indices ──▶ reservation of a slot ──▶ worker: dataset[index], written to the slot ──▶ commit
    (order)     (tickets keep the order)   (shared memory)                  (in order)

Read `passes` first: the thread that reads the source hands out (index, slot) in the order of the
indices, and commits slots in that order. A `pool` gives tasks to workers and keeps its books: a
worker that dies is replaced, and its items are made again. `start` has the two kinds of workers,
`process` what both do, and the life of a process. Items that do not go into slots as they are
(batch echoing, `unbatch`, `collate_fn`) come back pickled.
"""
