"""Sphinx's configuration: `make docs` builds the site from the Markdown files of the repository.

The sources' root is that of the repository, so that the links between docs/, notebooks/ and the
other pages are the same here as in an editor.
"""

import importlib
import inspect

from sphinx.util import logging

import keras_steps

project = "keras_steps"
author = "The keras_steps authors"
version = release = keras_steps.__version__
copyright = author

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    "docs/*.md",
    "notebooks/*.ipynb",
]
exclude_patterns = [".*", "demo*", "dist", "build", "docs/_build", "keras_steps", "tests"]

# Snippets are run by tests/test_docs_snippets.py, notebooks by `make notebooks`.
nb_execution_mode = "off"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

smartquotes_action = "D"  # dashes, but values such as "early" stay as they are written
default_role = "code"  # docstrings have `name`, as Markdown does
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_use_rtype = False
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "keras_steps"
html_additional_pages = {"index": "index.html"}
html_copy_source = False
html_css_files = ["wider.css"]
html_static_path = ["static"]
templates_path = ["templates"]

MODULES = [
    "keras_steps",
    "keras_steps.distribution",
    "keras_steps.schedules",
    "keras_steps.testing",
]


def setup(app):
    app.connect("autodoc-process-docstring", _indented_blocks_are_literal)
    app.connect("env-check-consistency", _every_public_symbol_is_there)


def _indented_blocks_are_literal(app, what, name, obj, options, lines):
    """As in Markdown: what is indented after a line that ends with a colon is shown as it is."""
    for number in range(len(lines) - 2):
        before, gap, after = lines[number : number + 3]
        if before.endswith(":") and not gap and after.startswith("    "):
            lines[number] = before if before.startswith(":") else f"{before}:"


def _every_public_symbol_is_there(app, env):
    documented = env.get_domain("py").objects
    for module in MODULES:
        for name in _public_names(importlib.import_module(module)):
            if f"{module}.{name}" not in documented:
                logging.getLogger(__name__).warning(
                    "%s.%s is public and has no place in docs/reference.md", module, name
                )


def _public_names(module):
    """What `__all__` has, or what is defined in the module, less modules."""
    own = [n for n, thing in vars(module).items() if _is_defined_in(thing, module.__name__)]
    names = getattr(module, "__all__", own)
    return [n for n in names if not n.startswith("_") and not inspect.ismodule(getattr(module, n))]


def _is_defined_in(thing, module):
    return (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__ == module
