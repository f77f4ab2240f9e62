"""Train Keras models by steps: stop, log and schedule on the optimizer's own counter."""

from keras_steps import distribution, schedules
from keras_steps.callbacks.evaluate_every_n import EvaluateEveryN
from keras_steps.callbacks.log_every_n import LogEveryN
from keras_steps.callbacks.on_step import OnStep
from keras_steps.callbacks.report_every_n import ReportEveryN
from keras_steps.callbacks.step_backup_and_restore import StepBackupAndRestore
from keras_steps.callbacks.step_checkpoint import StepCheckpoint
from keras_steps.callbacks.step_csv_logger import StepCSVLogger
from keras_steps.callbacks.step_early_stopping import StepEarlyStopping
from keras_steps.callbacks.step_history import StepHistory
from keras_steps.callbacks.step_profiler import StepProfiler
from keras_steps.callbacks.step_progress_bar import StepProgressBar
from keras_steps.callbacks.step_scheduled import StepScheduled
from keras_steps.callbacks.step_scheduled_lr import StepScheduledLR
from keras_steps.callbacks.step_tensorboard import StepTensorBoard
from keras_steps.callbacks.stop_after import StopAfter
from keras_steps.callbacks.stop_at_step import StopAtStep
from keras_steps.callbacks.stop_on_nan import StopOnNaN
from keras_steps.checkpoints import (
    Checkpoint,
    best_checkpoint,
    latest_checkpoint,
    list_checkpoints,
)
from keras_steps.evaluate_checkpoints import evaluate_checkpoints
from keras_steps.global_step import global_step, set_global_step
from keras_steps.loop import StepLoop
from keras_steps.restore_checkpoint import restore_checkpoint
from keras_steps.step_callback import StepCallback
from keras_steps.stop_reason import stop_reason
from keras_steps.triggers import AtSteps, EverySecs, EverySteps, GeometricSteps, Trigger

__version__ = "0.2.0"

__all__ = [
    "AtSteps",
    "Checkpoint",
    "EvaluateEveryN",
    "EverySecs",
    "EverySteps",
    "GeometricSteps",
    "LogEveryN",
    "OnStep",
    "ReportEveryN",
    "StepBackupAndRestore",
    "StepCSVLogger",
    "StepCallback",
    "StepCheckpoint",
    "StepEarlyStopping",
    "StepHistory",
    "StepLoop",
    "StepProfiler",
    "StepProgressBar",
    "StepScheduled",
    "StepScheduledLR",
    "StepTensorBoard",
    "StopAfter",
    "StopAtStep",
    "StopOnNaN",
    "Trigger",
    "best_checkpoint",
    "distribution",
    "evaluate_checkpoints",
    "global_step",
    "latest_checkpoint",
    "list_checkpoints",
    "restore_checkpoint",
    "schedules",
    "set_global_step",
    "stop_reason",
]
