"""Settings of Sphinx, for `make docs` and for Read the Docs."""

import builtins
import json
import os
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
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
default_role = "any"  # `EchoLoader` in a docstring is a link
myst_heading_anchors = 3
napoleon_google_docstring = False
autodoc_mock_imports = ["accelerate", "jax", "lightning", "torch", "transformers"]
autodoc_typehints = "none"  # the signatures have them
autodoc_member_order = "bysource"

ROOT = Path(__file__).parents[1]
PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
"""Pages that are a file of the repository's root, followed by what their own file has."""
LINK = re.compile(r"\]\((?!\w+:|#)(?P<path>[^)#]+)(?P<anchor>#[^)]*)?\)")
RESULT_LINK = re.compile(r"\]\(\.\./(?P<path>benchmarks/results/[^)#]+)\.(json|md)\)")
STALE = " *(stale: the native code has changed since)*"
FOREIGN = {"DataLoader", "IterableDataset", "Mapping", "NamedSharding", "Stateful"}


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


def home(name: str) -> str:
    """Return a file of the root as a page of docs."""
    pages = {file: f"{page}.md" for page, file in PAGES.items()}

    def relative(link: re.Match[str]) -> str:
        path = link["path"]
        inside = path.removeprefix("docs/")
        path = pages.get(path) or (inside if inside != path else f"../{path}")
        return f"]({path}{link['anchor'] or ''})"

    return LINK.sub(relative, (ROOT / PAGES[name]).read_text())


def outward(page: str) -> str:
    """Return a page whose links to files outside docs lead to the repository, or to the disk."""
    repository = os.environ.get("READTHEDOCS_GIT_CLONE_URL", "").removesuffix(".git")
    commit = os.environ.get("READTHEDOCS_GIT_COMMIT_HASH", "HEAD")

    def address(link: re.Match[str]) -> str:
        path = (ROOT / "docs" / link["path"]).resolve()
        if not link["path"].startswith("../") or not path.exists():
            return link[0]  # a page, or a warning of Sphinx's
        if repository:
            return f"]({repository}/blob/{commit}/{path.relative_to(ROOT)}{link['anchor'] or ''})"
        return f"]({path.as_uri()})"

    return LINK.sub(address, page)


def read(app, name: str, source: list[str]) -> None:
    """Prepare a page."""
    own = source[0]
    source[0] = outward(marked(f"{home(name)}\n\n{own}" if name in PAGES else own))


def resolve(app, environment, node, content):
    """Show names of parameters and of other packages as they are; pyecho's own must be found."""
    first = node["reftarget"].partition(".")[0]
    own = first == "pyecho" or (first[:1].isupper() and first not in FOREIGN | {*dir(builtins)})
    return None if own or node["reftype"] != "any" else content


def setup(app) -> None:
    app.connect("source-read", read)
    app.connect("missing-reference", resolve)
