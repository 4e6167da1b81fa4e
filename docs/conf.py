"""Settings of Sphinx for `make docs`."""

import json
import re
import subprocess
from pathlib import Path

import pyecho

project = "pyecho"
version = release = pyecho.__version__
copyright = "the pyecho authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = f"pyecho {version}"
default_role = "any"  # `EchoLoader` in a docstring is a link
# By the same quotes docstrings name parameters and private functions. Pages link to files outside
# docs.
suppress_warnings = ["ref.any", "myst.xref_missing"]
myst_heading_anchors = 3
napoleon_google_docstring = False
autodoc_mock_imports = ["accelerate", "jax", "lightning", "torch", "transformers"]
autodoc_typehints = "none"  # the signatures have them
autodoc_member_order = "bysource"


ROOT = Path(__file__).parents[1]
RESULT_LINK = re.compile(r"\]\(\.\./(?P<path>benchmarks/results/[^)#]+)\.(json|md)\)")
STALE = " *(stale: the native code has changed since)*"


def is_stale(results: Path) -> bool:
    """Return True unless the native code is that of the commit at which results were measured."""
    commit = json.loads(results.read_text())["facts"].get("commit")
    command = ["git", "diff", "--quiet", f"{commit}", "HEAD", "--", ":/csrc"]
    return subprocess.run(command, cwd=results.parent, stderr=subprocess.DEVNULL).returncode != 0


def marked(page: str, root: Path = ROOT) -> str:
    """Return a page whose links to stale results say so."""

    def mark(link: re.Match[str]) -> str:
        results = root / f"{link['path']}.json"
        return link[0] + STALE * is_stale(results)

    return RESULT_LINK.sub(mark, page)


def setup(app) -> None:
    def mark(app, name, source) -> None:
        source[0] = marked(source[0])

    app.connect("source-read", mark)
