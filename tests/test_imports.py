"""Data flows one way: step, trigger, action, writer. So do the imports."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import keras_steps

PACKAGE = Path(keras_steps.__file__).parent

MAY_IMPORT = {
    "arguments": set(),
    "triggers": {"arguments"},
    "keras_internals": set(),
    "foreign_schedules": set(),
    "schedule_curves": set(),
    "schedules": {"schedule_curves"},
    "global_step": {"arguments", "keras_internals"},
    "distribution": {"keras_internals"},
    "channels": {"distribution"},
    "workers": {"channels", "distribution"},
    "roll_call": {"distribution", "keras_internals", "preflight", "roles", "triggers"},
    "clock": {"keras_internals"},
    "reports": set(),
    "roles": set(),
    "readings": {"clock", "foreign_schedules", "keras_internals", "reports"},
    "extra": {"arguments", "reports"},
    "writers": set(),
    "preflight": {"keras_internals", "roles", "triggers"},
    "watch": {"clock", "reports"},
    "agenda": set(),
    "evaluations": {"preflight"},
    "stop_reason": set(),
    "background": set(),
    "random_states": set(),
    "signals": set(),
    "array_files": set(),
    "given_states": {"keras_internals", "state_trees"},
    "backups": {"array_files", "atomic", "preflight"},
    "restoring": {"backups", "distribution", "keras_internals"},
    "resumption": {"clock", "keras_internals", "random_states"},
    "backup_contents": {"given_states", "keras_internals", "random_states", "resumption"},
    "backing_up": {
        "backup_contents",
        "background",
        "backups",
        "given_states",
        "global_step",
        "keras_internals",
        "preflight",
        "random_states",
        "restoring",
        "resumption",
        "roles",
        "timelines",
        "worker_shares",
    },
    "worker_shares": {"backups", "distribution", "keras_internals", "random_states"},
    "run_state": set(),
    "training": {"distribution", "keras_internals", "preflight", "reports"},
    "agreement": {
        "clock",
        "distribution",
        "roles",
        "roll_call",
        "signals",
        "triggers",
        "watch",
        "workers",
    },
    "lookout": {
        "agreement",
        "clock",
        "keras_internals",
        "preflight",
        "readings",
        "roles",
        "watch",
    },
    "epoch_sums": {"reports"},
    "run": {
        "agenda",
        "clock",
        "epoch_sums",
        "evaluations",
        "keras_internals",
        "lookout",
        "preflight",
        "readings",
        "roles",
        "run_state",
        "stop_reason",
        "watch",
    },
    "epoch": set(),
    "fit_position": {"epoch", "keras_internals", "roles"},
    "train_function": set(),
    "fit_adapter": {
        "clock",
        "fit_position",
        "keras_internals",
        "preflight",
        "reports",
        "run",
        "train_function",
        "training",
    },
    "loops_under_way": {"fit_adapter"},
    "fit_flavours": {"fit_adapter", "keras_internals", "loops_under_way"},
    "step_callback": {
        "fit_flavours",
        "global_step",
        "keras_internals",
        "run",
        "triggers",
    },
    "device_scalars": set(),
    "logged": {"device_scalars", "reports"},
    "step_sources": {"arguments", "keras_internals"},
    "loop_training": {
        "distribution",
        "global_step",
        "keras_internals",
        "logged",
        "reports",
        "step_sources",
        "training",
    },
    "loop_position": {"epoch", "keras_internals", "roles"},
    "loop_run": {
        "fit_flavours",
        "keras_internals",
        "loop_position",
        "loops_under_way",
        "preflight",
        "run",
    },
    "loop": {"clock", "loop_run", "loop_training", "roles", "run", "step_callback"},
    "monitor": {"arguments", "evaluations", "keras_internals", "run", "step_callback"},
    "user_writers": {"arguments"},
    "reporting": {
        "extra",
        "preflight",
        "run",
        "step_callback",
        "timelines",
        "triggers",
        "user_writers",
    },
    "evaluation_data": {"keras_internals"},
    "evaluation_sources": {"arguments", "evaluation_data", "reports"},
    "timelines": set(),
    "atomic": set(),
    "checkpoint_index": {"atomic"},
    "checkpoints": {"atomic", "checkpoint_index", "timelines"},
    "checkpoint_directory": {"arguments", "atomic", "checkpoint_index", "checkpoints", "timelines"},
    "checkpoint_session": {
        "background",
        "checkpoint_directory",
        "keras_internals",
        "preflight",
        "workers",
    },
    "checkpoint_loading": {"keras_internals"},
    "framework_arrays": set(),
    "state_trees": {"framework_arrays"},
    "object_files": {"array_files", "state_trees"},
    "saved_states": {"framework_arrays", "keras_internals", "state_trees"},
    "torch_states": {"saved_states", "state_trees", "step_sources"},
    "savable_objects": {"arguments", "keras_internals", "saved_states", "torch_states"},
    "checkpoint_contents": {"keras_internals", "object_files", "savable_objects", "state_trees"},
    "restore_checkpoint": {
        "checkpoint_contents",
        "keras_internals",
        "object_files",
        "savable_objects",
        "saved_states",
        "timelines",
    },
    "evaluate_checkpoints": {
        "arguments",
        "atomic",
        "checkpoint_index",
        "checkpoint_loading",
        "checkpoints",
        "clock",
        "evaluation_data",
        "evaluation_sources",
        "keras_internals",
        "preflight",
        "reports",
        "timelines",
        "user_writers",
    },
    "profiling": {"timelines"},
    "tensorboard_writer": set(),
    "table_writer": set(),
    "history_points": set(),
    "curve_figure": set(),
    "rollback": {"keras_internals", "run", "run_state", "step_callback"},
    "scheduled": {
        "foreign_schedules",
        "keras_internals",
        "roles",
        "run",
        "step_callback",
        "triggers",
    },
    "testing": {"clock", "step_callback", "triggers"},
}
CALLBACKS_MAY_IMPORT = set(MAY_IMPORT) - {"fit_adapter", "testing", "clock"}


def imports_of(path):
    """Modules of the package that a file imports when it runs."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "keras_steps":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("keras_steps."):
            yield node.module.removeprefix("keras_steps.")


@pytest.mark.parametrize("module", sorted(p.stem for p in PACKAGE.glob("*.py")))
def test_a_module_imports_only_what_lies_before_it(module):
    if module == "__init__":
        return
    assert set(imports_of(PACKAGE / f"{module}.py")) <= MAY_IMPORT[module]


@pytest.mark.parametrize("path", sorted((PACKAGE / "callbacks").glob("*.py")), ids=lambda p: p.stem)
def test_callbacks_do_not_know_each_other(path):
    assert set(imports_of(path)) <= CALLBACKS_MAY_IMPORT


def names_of(path):
    return {node.attr for node in ast.walk(ast.parse(path.read_text())) if hasattr(node, "attr")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_only_keras_internals_touches_what_keras_keeps_private(path):
    private = {
        "_initial_epoch",
        "_iterations",
        "_jax_state",
        "_jax_state_synced",
        "_get_jax_state",
        "_learning_rate",
        "_progbar",
        "_flat_metrics",
        "_user_metrics",
        "_flush_futures",
        "_steps_per_execution",
        "_maybe_load_initial_counters_from_ckpt",
    }
    if "keras_internals" not in path.parts:
        assert not names_of(path) & private


def test_importing_keras_steps_imports_no_backend_of_its_own():
    code = (
        "import sys, keras; before = set(sys.modules); import keras_steps;"
        "new = {m.partition('.')[0] for m in set(sys.modules) - before};"
        "print(sorted(new & {'tensorflow', 'jax', 'torch', 'tf_keras', 'tensorboard', 'optax'}))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ
    )
    assert ran.stdout.strip() == "[]", ran.stderr


def test_the_public_surface_is_explicit():
    assert sorted(keras_steps.__all__) == keras_steps.__all__
    assert all(hasattr(keras_steps, name) for name in keras_steps.__all__)
