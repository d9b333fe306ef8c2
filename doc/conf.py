"""Sphinx configuration."""

import importlib.metadata

project = "pypto"
author = "The pypto developers"
release = importlib.metadata.version("pypto-linalg")
extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.intersphinx", "numpydoc", "myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
intersphinx_mapping = {}
nitpicky = False
suppress_warnings = ["myst.header", "ref.data"]
