"""Commands and displays: `cli` has the command line, `arguments` what commands share.

`info` and `advise` are commands, as are `pyecho.demo` and `pyecho.bench`; `html` shows a loader in
a notebook.
"""
