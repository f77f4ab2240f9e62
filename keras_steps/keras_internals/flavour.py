"""Which Keras an object belongs to."""

from __future__ import annotations

from typing import Any

import keras


def backend_of(model: Any) -> str:
    """The backend of a Keras 3 object, such as "jax"; "tf_keras" for one of tf_keras."""
    for base in type(model).__mro__:
        if base.__module__.partition(".")[0] == "tf_keras":
            return "tf_keras"
    return str(keras.backend.backend())


def held_by(variable: Any) -> Any:
    """What a variable of Keras 3 holds of its backend's; any other is that itself.

    Asked for an attribute that it lacks, one of TensorFlow's strategies looks at what reading
    it gives, which for metrics under several workers is a collective. (TensorFlow 2.21)
    """
    return variable._value if isinstance(variable, keras.Variable) else variable
