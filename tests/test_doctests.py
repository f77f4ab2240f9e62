"""Every example in a docstring runs, and every public symbol has one."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import keras_steps

MODULES = [
    module.name for module in pkgutil.walk_packages(keras_steps.__path__, prefix="keras_steps.")
]
NEEDS = {"keras_steps.callbacks.step_progress_bar": "tqdm"}
SYMBOLS = [name for name in keras_steps.__all__ if not inspect.ismodule(getattr(keras_steps, name))]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_print_what_they_say(module):
    if module in NEEDS:
        pytest.importorskip(NEEDS[module])
    failed, _ = doctest.testmod(importlib.import_module(module))
    assert failed == 0


@pytest.mark.parametrize("name", SYMBOLS)
def test_every_public_symbol_has_a_runnable_example(name):
    """Its own: an inherited docstring is about something else."""
    thing = getattr(keras_steps, name)
    docstring = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert docstring, f"keras_steps.{name} has no docstring"
    examples = doctest.DocTestFinder(recurse=False).find(thing, name)[0].examples
    assert examples, f"keras_steps.{name} has no example"
