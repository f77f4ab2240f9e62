"""Runs each notebook from its text, and keeps it with its outputs beside the text.

    python notebooks/build.py [NUMBER ...]

With numbers, such as 04, only those.
The text, such as 01_global_step.py, is what is written and reviewed; the .ipynb is made from it.
A cell that fails, writes to stderr, or shows a path of this machine fails the build, and so do
outputs that make a notebook large.
"""

import re
import sys
import tempfile
import time
from pathlib import Path

import jupytext
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

FOLDER = Path(__file__).resolve().parent
LIMIT = 600  # seconds a notebook; two idle cores need less than a minute for each
SIZE = 200  # kB a notebook
TEMPORARY = re.compile(rf"{re.escape(tempfile.gettempdir())}/tmp\w+")  # as mkdtemp names them


def main() -> None:
    numbers = sys.argv[1:] or [""]
    texts = {number: sorted(FOLDER.glob(f"{number}*_*.py")) for number in numbers}
    if missing := [number for number, found in texts.items() if not found]:
        sys.exit(f"error: there is no notebook {', '.join(missing)}")
    for text in [text for found in texts.values() for text in found]:
        start = time.monotonic()
        try:
            notebook = run(jupytext.read(text), ends_at=start + LIMIT)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            sys.exit(f"error: {text.name}: {error}")
        tidy(notebook)
        check(notebook, text.name)
        made = text.with_suffix(".ipynb")
        jupytext.write(notebook, made)
        size = made.stat().st_size / 1000
        print(f"{made.name}: {time.monotonic() - start:.0f} s, {size:.0f} kB", flush=True)
        if size > SIZE:
            sys.exit(f"error: {made.name} has {size:.0f} kB, more than {SIZE}: make plots smaller")


def run(notebook, ends_at: float):
    def seconds_left(cell) -> int:
        return max(1, int(ends_at - time.monotonic()))

    with tempfile.TemporaryDirectory() as folder:
        pipes = {"transport": "ipc", "ip": f"{folder}/kernel"}  # no port that others could read
        client = NotebookClient(
            notebook,
            config=Config(KernelManager=pipes),
            timeout_func=seconds_left,
            resources={"metadata": {"path": folder}},
            coalesce_streams=True,
        )
        return client.execute()


def tidy(notebook) -> None:
    """Nothing stays that differs from run to run or from machine to machine."""
    kept = ("jupytext", "kernelspec")
    notebook.metadata = {name: notebook.metadata[name] for name in kept}
    for number, cell in enumerate(notebook.cells, start=1):
        cell.id = f"cell-{number}"
        cell.metadata = {}
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = {}
            if "text" in output:
                output.text = TEMPORARY.sub("…", output.text)


def check(notebook, name: str) -> None:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    machine = [str(FOLDER.parent), str(Path.home()), tempfile.gettempdir(), sys.prefix]
    for output in outputs:
        if output.get("name") == "stderr":
            sys.exit(f"error: {name}: a cell wrote to stderr:\n{output.text}")
        texts = [output.get("text", "")]
        texts += [t for kind, t in output.get("data", {}).items() if kind.startswith("text/")]
        for path in machine:
            if any(path in text for text in texts):
                sys.exit(f"error: {name}: an output shows the path {path}:\n{''.join(texts)}")


if __name__ == "__main__":
    main()
