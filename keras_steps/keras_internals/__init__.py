"""What Keras has no public way for, in one place.

Each function names the reason and the versions it was seen in. The tests in
tests/test_keras_internals.py fail when Keras changes one of them. Seen in: Keras 3.12
and 3.15, tf_keras 2.21.
"""

from keras_steps.keras_internals.building import build_like, build_state, put_metrics_back
from keras_steps.keras_internals.callback_states import (
    callback_states,
    keras_backups,
    set_callback_states,
    sets_learning_rate,
    without_known_state,
)
from keras_steps.keras_internals.console import (
    Console,
    progress_bar,
)
from keras_steps.keras_internals.copies import assigned, copied, first_non_finite
from keras_steps.keras_internals.data_seeking import replay_pass
from keras_steps.keras_internals.directions import direction_of
from keras_steps.keras_internals.evaluation import Evaluator
from keras_steps.keras_internals.fit_call import FitCall, calls_around, is_within
from keras_steps.keras_internals.fitting import (
    batches_set_to,
    cannot_run,
    exported_name,
    has_keras_train_step,
    is_compiled,
    is_end_of_data,
    reads_attributes_each_step,
    results_without_logs,
    skip_all_epochs,
    skip_validation,
    start_at_epoch,
    steps_per_execution,
    without_results,
)
from keras_steps.keras_internals.flavour import (
    backend_of,
    held_by,
)
from keras_steps.keras_internals.kept_state import random_states_kept, training_kept
from keras_steps.keras_internals.key_values import KeyValues, key_values_of
from keras_steps.keras_internals.metrics import (
    mean_metrics,
)
from keras_steps.keras_internals.model_state import (
    by_replica,
    for_replicas,
    for_replicas_of,
    is_of_metrics,
    optimizers_of,
    state_variables,
    unkept_generators,
)
from keras_steps.keras_internals.multi_worker import cure, is_multi_worker, strategy_of
from keras_steps.keras_internals.object_state import object_variables
from keras_steps.keras_internals.optimizers import (
    build_optimizer,
    core_optimizer,
    counter_of,
    is_loss_scaled,
    is_optimizer,
    learning_rate_source,
    name_of,
)
from keras_steps.keras_internals.prepared_data import takes_prepared_data
from keras_steps.keras_internals.saving import PreparedSave, can_save, prepare_save
from keras_steps.keras_internals.skipping import Skipping
from keras_steps.keras_internals.training_data import Position, TrainingData
from keras_steps.keras_internals.training_data_flavours import training_data_of
from keras_steps.keras_internals.variables import (
    CoordinatedVariables,
    JaxState,
    Variables,
    fetched,
    is_coordinated,
    is_purged,
    jax_state_in_flight,
    read_number,
    variables_of,
    variables_of_loop,
)

__all__ = [
    "held_by",
    "build_like",
    "build_state",
    "callback_states",
    "put_metrics_back",
    "set_callback_states",
    "without_known_state",
    "calls_around",
    "is_within",
    "Console",
    "FitCall",
    "CoordinatedVariables",
    "Evaluator",
    "JaxState",
    "Position",
    "KeyValues",
    "PreparedSave",
    "Skipping",
    "TrainingData",
    "Variables",
    "assigned",
    "backend_of",
    "batches_set_to",
    "build_optimizer",
    "by_replica",
    "can_save",
    "cannot_run",
    "exported_name",
    "copied",
    "core_optimizer",
    "counter_of",
    "cure",
    "direction_of",
    "fetched",
    "first_non_finite",
    "for_replicas",
    "for_replicas_of",
    "has_keras_train_step",
    "is_compiled",
    "is_coordinated",
    "is_end_of_data",
    "is_loss_scaled",
    "is_multi_worker",
    "is_of_metrics",
    "is_optimizer",
    "is_purged",
    "jax_state_in_flight",
    "keras_backups",
    "key_values_of",
    "learning_rate_source",
    "mean_metrics",
    "name_of",
    "object_variables",
    "optimizers_of",
    "prepare_save",
    "progress_bar",
    "random_states_kept",
    "read_number",
    "reads_attributes_each_step",
    "replay_pass",
    "results_without_logs",
    "sets_learning_rate",
    "skip_all_epochs",
    "skip_validation",
    "start_at_epoch",
    "state_variables",
    "steps_per_execution",
    "strategy_of",
    "takes_prepared_data",
    "training_data_of",
    "training_kept",
    "unkept_generators",
    "variables_of",
    "variables_of_loop",
    "without_results",
]
