"""docs/errors.md has an entry for each warning and each error, and none for one that is no more."""

import ast
import re
from pathlib import Path

import pytest
from flavours import FLAVOUR

import keras_steps

PACKAGE = Path(keras_steps.__file__).parent
PAGE = (PACKAGE.parent / "docs/errors.md").read_text()
ENTRIES = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE) + [
    entry
    for also in re.findall(r"^Also: .*(?:\n.+)*", PAGE, re.MULTILINE)
    for entry in re.findall(r"`([^`]*)`", also)
]
CALLS = {"warn", "_warn", "complain", "_complain"}
FUNCTIONS = {"warnings", "_refusal", "_no_source", "_difference", "_has_ended"}
"""What is not written in a `raise` or a call is the value of one of these, or of preflight."""

# Its only job is to say what was given and what is wanted: one entry serves all of these.
OF_ARGUMENTS = re.compile(r"\bmust (be|end|have|hold|lie|return|rise)\b|\breceived\b|\breturned\b")

pytestmark = pytest.mark.skipif(FLAVOUR != "tensorflow", reason="once is enough")


def template(node):
    """The text of a string or f-string, with … for what is filled in; None for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) or "…" for part in node.values)
    return None


def texts_in(node):
    """Of the whole strings below a node, not of their parts, nor of docstrings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []
    text = template(node)
    if text is not None:
        return [text]
    return [text for child in ast.iter_child_nodes(node) for text in texts_in(child)]


def name_of(node):
    function = getattr(node, "func", node)
    return getattr(function, "id", getattr(function, "attr", getattr(function, "name", None)))


def complaints(path):
    """What a module may raise or warn of."""
    for node in ast.walk(ast.parse(path.read_text())):
        is_call = isinstance(node, ast.Call) and name_of(node) in CALLS
        is_function = isinstance(node, ast.FunctionDef) and name_of(node) in FUNCTIONS
        is_preflight = path.name == "preflight.py" and isinstance(node, ast.Yield | ast.Return)
        if isinstance(node, ast.Raise) or is_call or is_function or is_preflight:
            yield from texts_in(node)


MESSAGES = {
    text
    for path in PACKAGE.rglob("*.py")
    for text in complaints(path)
    if re.search(r" .*[a-z]{3}", text) and not OF_ARGUMENTS.search(text)
}


def is_about(entry, text):
    """Whether the pieces of an entry, between its …, come in this order in the text."""
    return re.search(".*?".join(re.escape(piece) for piece in entry.split("…")), text, re.DOTALL)


def test_each_warning_and_error_has_an_entry():
    assert [m for m in sorted(MESSAGES) if not any(is_about(e, m) for e in ENTRIES)] == []


def test_each_entry_is_about_a_warning_or_an_error():
    assert [e for e in ENTRIES if not any(is_about(e, m) for m in MESSAGES)] == []
