"""The run of `flavours.fit` written as a loop of one's own, in the ways people write one."""

from __future__ import annotations

import numpy as np
from flavours import BATCH, FLAVOUR, arrays

import keras_steps as ks


def batches_of(x, y):
    return [(x[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(x), BATCH)]


def by_train_on_batch(model):
    """A step that returns the batch's own loss and metric: Keras's returns running means."""

    def step(x, y):
        model.reset_metrics()
        return model.train_on_batch(x, y)

    return step


def _on_tensorflow(model):
    import tensorflow as tf

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            error = model(x, training=True) - y
            loss = tf.reduce_mean(error**2)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss, tf.reduce_mean(tf.abs(error))

    return lambda x, y: step(tf.constant(x), tf.constant(y))


def _on_torch(model):
    import torch

    def step(x, y):
        model.zero_grad()
        error = model(torch.from_numpy(x), training=True) - torch.from_numpy(y)
        loss = (error**2).mean()
        loss.backward()
        weights = list(model.trainable_weights)
        with torch.no_grad():
            model.optimizer.apply([w.value.grad for w in weights], weights)
        return loss, error.abs().mean()

    return step


class JaxSteps:
    """Stateless steps: the state is this object's, and the model has copies when asked for."""

    def __init__(self, model):
        import jax
        import jax.numpy as jnp

        self.model = model
        model.optimizer.build(model.trainable_variables)
        self.variables = [
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
        ]
        self.state = [[v.value for v in group] for group in self.variables]
        self.asked = 0

        def loss_of(trainable, rest, x, y):
            predicted, rest = model.stateless_call(trainable, rest, x, training=True)
            error = predicted - y
            return jnp.mean(error**2), (rest, jnp.mean(jnp.abs(error)))

        @jax.jit
        def step(state, x, y):
            trainable, rest, optimizer = state
            (loss, (rest, mae)), gradients = jax.value_and_grad(loss_of, has_aux=True)(
                trainable, rest, x, y
            )
            trainable, optimizer = model.optimizer.stateless_apply(optimizer, gradients, trainable)
            return [trainable, rest, optimizer], (loss, mae)

        self._step = step

    def __call__(self, x, y):
        self.state, results = self._step(self.state, x, y)
        return results

    def step(self):
        """What StepLoop(optimizer) is given: called when something may be due."""
        self.asked += 1
        for variables, values in zip(self.variables, self.state, strict=True):
            for variable, value in zip(variables, values, strict=True):
                variable.assign(value)
        return int(self.model.optimizer.iterations.value)


def by_own_step(model):
    """A step as the backend's users write it, and what StepLoop is to be told of it."""
    if FLAVOUR == "jax":
        steps = JaxSteps(model)
        return steps, {"optimizer": steps.step}
    return (_on_torch if FLAVOUR == "torch" else _on_tensorflow)(model), {}


def loop(model, callbacks, *, batches=10, epochs=1, step=None, data=None, **loop_args):
    """As flavours.fit, in a StepLoop; returns it."""
    step = step or by_train_on_batch(model)
    with ks.StepLoop(callbacks, model=model, **loop_args) as the_loop:
        for _ in range(epochs):
            for x, y in the_loop.over(batches_of(*(data or arrays(batches)))):
                loss, mae = step(x, y)
                the_loop.log(loss=loss, mae=mae)
    return the_loop


def weights_of(model):
    return [np.array(weight) for weight in model.get_weights()]
