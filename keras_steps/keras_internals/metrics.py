"""Which metrics are means, under the names that logs have."""

from __future__ import annotations

from typing import Any

from keras_steps.keras_internals.flavour import backend_of


def mean_metrics(model: Any) -> dict[str, Any]:
    """The model's metrics that are true means, under the names that fit's logs have.

    A metric is one if its `result` is Mean's own: RootMeanSquaredError has the same
    variables and takes a root. Keras 3 names compiled metrics only when it computes them.
    """
    found: dict[str, Any] = {}
    for metric in model.metrics:
        if hasattr(metric, "_flat_metrics"):
            found.update(_compiled_metrics(metric))
        else:
            found[metric.name] = metric
    return {name: metric for name, metric in found.items() if _is_mean(metric)}


def _compiled_metrics(compiled: Any) -> dict[str, Any]:
    """Keras 3's CompileMetrics: an output's name before, a number behind a second one."""
    found: dict[str, Any] = {}
    times: dict[str, int] = {}
    for weighted, groups in enumerate((compiled._flat_metrics, compiled._flat_weighted_metrics)):
        for group in filter(None, groups):
            prefix = f"{group.output_name}_" if group.output_name else ""
            for metric in group.metrics:
                name = prefix + metric.name
                if weighted and name in times:
                    name = f"{prefix}weighted_{metric.name}"
                before = times[name] = times.get(name, -1) + 1
                found[f"{name}_{before}" if before else name] = metric
    return found


def _is_mean(metric: Any) -> bool:
    if backend_of(metric) == "tf_keras":
        from tf_keras.metrics import Mean
    else:
        from keras.metrics import Mean
    return isinstance(metric, Mean) and type(metric).result is Mean.result
