"""Keras's own metrics tell their directions; these fail when Keras changes how."""

import inspect

import pytest
from flavours import IS_TF_KERAS, keras, make_model

from keras_steps.keras_internals import direction_of

ARGUMENTS = {
    "IoU": (2, [0]),
    "MeanIoU": (2,),
    "OneHotIoU": (2, [0]),
    "OneHotMeanIoU": (2,),
    "PrecisionAtRecall": (0.5,),
    "RecallAtPrecision": (0.5,),
    "SensitivityAtSpecificity": (0.5,),
    "SpecificityAtSensitivity": (0.5,),
    "MeanRelativeError": ([1.0],),
}
NO_DIRECTION = {
    *("Mean", "Sum", "MeanTensor"),
    *("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"),
}
UP = {
    *("AUC", "Precision", "Recall", "F1Score", "FBetaScore", "R2Score", "CosineSimilarity"),
    *("PrecisionAtRecall", "RecallAtPrecision"),
    *("SensitivityAtSpecificity", "SpecificityAtSensitivity"),
    *("ConcordanceCorrelation", "PearsonCorrelation"),
    *("IoU", "BinaryIoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU"),
}
ABSTRACT = {"Metric", "MeanMetricWrapper"}
CLASSES = {
    name: kind
    for name, kind in vars(keras.metrics).items()
    if inspect.isclass(kind)
    and issubclass(kind, keras.metrics.Metric)
    and name == kind.__name__
    and name not in ABSTRACT
}


def expected(name):
    if name in NO_DIRECTION:
        return None
    return "max" if name in UP or name.endswith("Accuracy") else "min"


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_each_of_keras_metrics_tells_its_direction(name):
    metric = CLASSES[name](*ARGUMENTS.get(name, ()), name="renamed")
    assert direction_of(make_model(metrics=[metric]), "renamed") == expected(name)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_so_do_their_names_by_themselves(name):
    metric = CLASSES[name](*ARGUMENTS.get(name, ()))
    assert direction_of(make_model(metrics=[]), metric.name) == expected(name)


@pytest.mark.skipif(IS_TF_KERAS, reason="tf_keras's metrics bear no mark")
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_keras_marks_them(name):
    marked = getattr(CLASSES[name](*ARGUMENTS.get(name, ())), "_direction", None)
    assert {None: None, "up": "max", "down": "min"}[marked] == expected(name)


@pytest.mark.parametrize(
    ("metrics", "name", "wanted"),
    [
        ({"one": [], "two": "mae"}, "two_mae", "min"),
        ([[], [keras.metrics.AUC(name="area")]], "two_area", "max"),
        ([[], [keras.metrics.AUC(name="area")]], "two_area_1", "max"),
        ([[keras.metrics.AUC(name="x")], [keras.metrics.Hinge(name="x")]], "one_x", None),
    ],
)
def test_metrics_of_several_outputs(metrics, name, wanted):
    inputs = keras.layers.Input((4,))
    outputs = [keras.layers.Dense(1, name=each)(inputs) for each in ("one", "two")]
    if isinstance(metrics, dict):
        outputs = dict(zip(("one", "two"), outputs, strict=True))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "mse", metrics=metrics)
    assert direction_of(model, name) == wanted


def test_a_model_without_metrics():
    model = make_model(metrics=[])
    assert direction_of(model, "loss") == "min"
    assert direction_of(model, "score") is None
