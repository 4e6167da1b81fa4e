"""Settings of Sphinx for `make docs`."""

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
