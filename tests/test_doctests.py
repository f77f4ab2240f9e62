"""Every example in a docstring runs, and every public symbol has one."""

import doctest
import importlib
import inspect

import pytest

import keras_steps

MODULES = [
    "triggers",
    "clock",
    "foreign_schedules",
    "global_step",
    "testing",
    "step_callback",
    "callbacks.log_every_n",
    "callbacks.on_step",
    "callbacks.report_every_n",
    "callbacks.step_csv_logger",
    "callbacks.step_history",
    "callbacks.step_progress_bar",
    "callbacks.step_scheduled",
    "callbacks.step_tensorboard",
    "callbacks.stop_at_step",
]
SYMBOLS = [name for name in keras_steps.__all__ if not inspect.ismodule(getattr(keras_steps, name))]


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_print_what_they_say(module):
    failed, _ = doctest.testmod(importlib.import_module(f"keras_steps.{module}"))
    assert failed == 0


@pytest.mark.parametrize("name", SYMBOLS)
def test_every_public_symbol_has_a_runnable_example(name):
    """Its own: an inherited docstring is about something else."""
    thing = getattr(keras_steps, name)
    docstring = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    assert docstring, f"keras_steps.{name} has no docstring"
    examples = doctest.DocTestFinder(recurse=False).find(thing, name)[0].examples
    assert examples, f"keras_steps.{name} has no example"


def test_the_modules_of_public_symbols_are_all_tested():
    homes = {getattr(keras_steps, name).__module__ for name in SYMBOLS}
    assert homes <= {f"keras_steps.{module}" for module in MODULES}
