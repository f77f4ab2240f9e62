"""Every Python snippet of the README and the docs runs, and the design names what is there."""

import ast
import contextlib
import importlib.util
import io
import os
import re
from pathlib import Path

import numpy as np
import pytest
from flavours import FLAVOUR, IS_TF_KERAS

import keras_steps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DESIGN = (ROOT / "docs/design.md").read_text()


def snippets(page):
    """Each block with the number of its first line."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[1]


def lacks(code):
    """A module that the code imports and this environment has not."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if importlib.util.find_spec(alias.name.partition(".")[0]) is None:
                    return alias.name
    return None


def endless():
    while True:
        yield np.zeros((4, 8), "float32"), np.zeros((4, 1), "float32")


@pytest.mark.skipif(IS_TF_KERAS, reason="the docs are written for Keras 3")
@pytest.mark.parametrize("page", [p for p in PAGES if any(snippets(p))], ids=lambda p: p.name)
def test_the_snippets_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    """In one namespace; `# value` after a print says what it prints. 10,000 steps become 1,000."""
    if page.name == "README.md" and FLAVOUR != "tensorflow":
        pytest.skip("the README installs TensorFlow")
    monkeypatch.chdir(tmp_path)
    names = {"__name__": page.stem, "endless": endless()}
    for line, code in snippets(page):
        if lacks(code):
            continue
        printed = io.StringIO()
        source = "\n" * line + code.replace("10_000", "1_000")
        with contextlib.redirect_stdout(printed):
            exec(compile(source, os.fspath(page), "exec"), names)
        for value in re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE):
            assert value in printed.getvalue().splitlines(), f"{page.name}, line {line}"


@pytest.mark.parametrize("name", keras_steps.__all__)
def test_the_design_has_every_public_name(name):
    surface = DESIGN.partition("## Public surface")[2].partition("## Data flow")[0]
    assert re.search(rf"\b{name}\b", surface)


def test_the_layout_in_the_design_names_the_modules_that_there_are():
    package = Path(keras_steps.__file__).parent
    layout = DESIGN.partition("```\nkeras_steps/")[2].partition("```")[0]
    named = set(re.findall(r"\b(\w+\.py)\b", layout))
    assert named == {path.name for path in package.glob("*.py")}
