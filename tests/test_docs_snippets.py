"""Every Python snippet of the README and the docs runs, and the design names what is there."""

import ast
import contextlib
import difflib
import doctest
import functools
import importlib.util
import io
import logging
import os
import re
import subprocess
from pathlib import Path

import pytest
from flavours import FLAVOUR, IS_TF_KERAS

import keras_steps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```$(?:\n+```text\n(?P<output>.*?)^```$)?", re.MULTILINE | re.DOTALL
)
FENCE = re.compile(r"^(?P<before>.*)\n```(?P<language>\S+)\n(?P<text>[\s\S]*?)^```$", re.MULTILINE)
LANGUAGES = {"bash", "py", "python", "text", "yaml", "{eval-rst}", "{toctree}", "{include}"}
ONLY_ON = {
    "README.md": ["tensorflow"],
    "gan.md": ["tensorflow"],
    "loops.md": ["tensorflow"],
    "migration.md": ["tensorflow"],
    "profiling.md": ["tensorflow", "jax"],
}
DESIGN = (ROOT / "docs/design.md").read_text()


def snippets(page):
    """Each block: the number of its first line, the code, and what the page says it prints."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found["code"], found["output"]


def lacks(code):
    """A module that the code imports and this environment has not."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if importlib.util.find_spec(alias.name.partition(".")[0]) is None:
                    return alias.name
    return None


@pytest.mark.slow
@pytest.mark.skipif(IS_TF_KERAS, reason="the docs are written for Keras 3")
@pytest.mark.parametrize("page", [p for p in PAGES if any(snippets(p))], ids=lambda p: p.name)
def test_the_snippets_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch, request):
    """In one namespace. A `text` block behind a snippet is what it prints, with `...` for anything;
    `# value` after a print, one of its lines. 10,000 steps become 1,000."""
    if FLAVOUR not in ONLY_ON.get(page.name, [FLAVOUR]):
        pytest.skip(f"is about {' and '.join(ONLY_ON[page.name])}")
    monkeypatch.chdir(tmp_path)
    logger = logging.getLogger("tensorflow")  # a page may send its lines elsewhere
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    request.addfinalizer(functools.partial(logger.setLevel, logger.level))
    names = {"__name__": page.stem}
    stdout = io.StringIO()  # one for the page: handlers of logging keep it
    for line, code, output in snippets(page):
        if lacks(code):
            continue
        source = "\n" * line + code.replace("10_000", "1_000")
        with contextlib.redirect_stdout(stdout):
            exec(compile(source, os.fspath(page), "exec"), names)
        printed = stdout.getvalue()
        stdout.seek(0)
        stdout.truncate()
        for value in re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE):
            assert value in printed.splitlines(), f"{page.name}, line {line}"
        if output is not None:
            assert not differences(output, printed), f"{page.name}, line {line}"


def differences(expected, printed):
    """Lines of a diff, or none."""
    if doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS):
        return []
    return list(difflib.ndiff(expected.splitlines(), printed.splitlines()))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_does_not_run_says_so_and_is_python_all_the_same(page):
    """It is fenced as `py`, below a line that begins with "Not run"."""
    for fence in FENCE.finditer(page.read_text()):
        assert fence["language"] in LANGUAGES, fence["language"]
        if fence["language"] == "py":
            ast.parse(fence["text"])
            assert fence["before"].startswith("Not run"), fence["text"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_shell_scripts_of_a_page_have_no_syntax_errors(page):
    for fence in FENCE.finditer(page.read_text()):
        if fence["language"] == "bash":
            subprocess.run(["bash", "-n"], input=fence["text"], text=True, check=True)


@pytest.mark.parametrize("name", keras_steps.__all__)
def test_the_design_has_every_public_name(name):
    surface = DESIGN.partition("## Public surface")[2].partition("## Data flow")[0]
    assert re.search(rf"\b{name}\b", surface)


def test_the_layout_in_the_design_names_the_modules_that_there_are():
    package = Path(keras_steps.__file__).parent
    layout = DESIGN.partition("```\nkeras_steps/")[2].partition("```")[0]
    named = set(re.findall(r"\b(\w+\.py)\b", layout))
    assert named == {path.name for path in package.glob("*.py")}
