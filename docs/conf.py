"""Sphinx configuration. `make docs` builds with warnings as errors; the reference is written by generate.py from the sources."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generate

import pullback

project = "pullback"
author = "the pullback developers"
copyright = author
release = version = pullback.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "pullback"
html_copy_source = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
default_role = "code"
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Math", "Saves", "Supports"]


def setup(app):
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "reference" / "generated"))
