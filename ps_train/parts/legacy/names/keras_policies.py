"""`tf.keras.mixed_precision.experimental` and the schedules of `tf.keras.experimental`, by their old arguments."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import tensorflow.compat.v1 as tf
from tf_keras import mixed_precision
from tf_keras.optimizers.schedules import LearningRateSchedule

_log = logging.getLogger(__name__)


class Policy(mixed_precision.Policy):
    """The types of a layer: `mixed_float16` computes in float16, its variables are float32."""

    def __init__(self, name: str, loss_scale: Any = "auto") -> None:
        """Takes the name; a loss scale that is not "dynamic" has to be given to the optimizer today."""
        super().__init__(name)
        if loss_scale not in ("auto", "dynamic", None):
            _log.warning("Policy: loss_scale=%r has no effect; give it to LossScaleOptimizer", loss_scale)
        self.loss_scale = ("dynamic" if name == "mixed_float16" else None) if loss_scale == "auto" else loss_scale


def set_policy(policy: Any) -> None:
    """Sets the policy of layers that are made from now on, by its name or as an object; their types follow it."""
    tf.keras.layers.enable_v2_dtype_behavior()  # without it, a layer takes the type of its input, and has no policy
    mixed_precision.set_global_policy(Policy(policy) if isinstance(policy, str) else policy)


def loss_scale_optimizer(optimizer: Any, loss_scale: Any = "dynamic") -> Any:
    """`LossScaleOptimizer`: returns an optimizer that scales the loss.

    Args:
      loss_scale: a number; "dynamic", as large as it can be; a FixedLossScale or DynamicLossScale; None for 1.
    """
    if isinstance(loss_scale, tf.train.experimental.FixedLossScale):
        loss_scale = loss_scale.get_config()["loss_scale_value"]
    if loss_scale == "dynamic" or isinstance(loss_scale, tf.train.experimental.DynamicLossScale):
        return mixed_precision.LossScaleOptimizer(optimizer)
    scale = 1.0 if loss_scale is None else float(loss_scale)
    return mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=scale)


class _CosineDecay(LearningRateSchedule):
    """A learning rate by a function of `tf.train`, which takes its step second."""

    _function: Any

    def __init__(self, initial_learning_rate: float, decay_steps: int, *args: Any, **kwargs: Any) -> None:
        """Takes what the function takes, in its order, but for the step."""
        super().__init__()
        order = list(inspect.signature(self._function).parameters)[3:]
        self._settings = {"initial_learning_rate": initial_learning_rate, "decay_steps": decay_steps,
                          **dict(zip(order, args)), **kwargs}

    def __call__(self, step: Any) -> Any:
        """Returns the rate at a step, float32 []."""
        settings = dict(self._settings)
        rate = self._function(settings.pop("initial_learning_rate"), tf.cast(step, tf.float32), **settings)
        return rate() if callable(rate) else rate  # eagerly, it is a function

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments."""
        return dict(self._settings)


class LinearCosineDecay(_CosineDecay):
    """The schedule of `tf.train.linear_cosine_decay`."""

    _function = staticmethod(tf.train.linear_cosine_decay)


class NoisyLinearCosineDecay(_CosineDecay):
    """The schedule of `tf.train.noisy_linear_cosine_decay`."""

    _function = staticmethod(tf.train.noisy_linear_cosine_decay)
