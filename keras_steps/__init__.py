"""Train Keras models by steps: stop, log and schedule on the optimizer's own counter."""

from keras_steps import distribution, schedules
from keras_steps.callbacks.log_every_n import LogEveryN
from keras_steps.callbacks.on_step import OnStep
from keras_steps.callbacks.report_every_n import ReportEveryN
from keras_steps.callbacks.step_csv_logger import StepCSVLogger
from keras_steps.callbacks.step_history import StepHistory
from keras_steps.callbacks.step_progress_bar import StepProgressBar
from keras_steps.callbacks.step_scheduled import StepScheduled
from keras_steps.callbacks.step_scheduled_lr import StepScheduledLR
from keras_steps.callbacks.step_tensorboard import StepTensorBoard
from keras_steps.callbacks.stop_at_step import StopAtStep
from keras_steps.global_step import global_step, set_global_step
from keras_steps.step_callback import StepCallback
from keras_steps.stop_reason import stop_reason
from keras_steps.triggers import AtSteps, EverySecs, EverySteps, GeometricSteps, Trigger

__version__ = "0.1.0"

__all__ = [
    "AtSteps",
    "EverySecs",
    "EverySteps",
    "GeometricSteps",
    "LogEveryN",
    "OnStep",
    "ReportEveryN",
    "StepCSVLogger",
    "StepCallback",
    "StepHistory",
    "StepProgressBar",
    "StepScheduled",
    "StepScheduledLR",
    "StepTensorBoard",
    "StopAtStep",
    "Trigger",
    "distribution",
    "global_step",
    "schedules",
    "set_global_step",
    "stop_reason",
]
