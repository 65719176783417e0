"""Optimizers of tf.contrib.opt that few jobs use, with the slots that they had."""

from __future__ import annotations

import copy
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.training.saving.saveable_object_util import op_list_to_dict  # it has no public name

from ps_train.parts.legacy.names.reference_code import of_either

_apply_ada_max, _apply_add_sign, _apply_power_sign, _apply_momentum, _sparse_apply_momentum = map(of_either, (
    "apply_ada_max", "apply_add_sign", "apply_power_sign", "apply_momentum", "sparse_apply_momentum"))


class _Both(tf.train.Optimizer):
    """An optimizer that updates resource variables and reference variables alike."""

    def _dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        raise NotImplementedError

    def _rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        raise NotImplementedError

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._dense(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        return self._rows(grad, var, indices)


def _cast(var: tf.Variable, *values: Any) -> list[tf.Tensor]:
    return [tf.cast(value() if callable(value) else value, var.dtype.base_dtype) for value in values]


class RMSPropOptimizer(tf.train.RMSPropOptimizer):
    """That of contrib.optimizer_v2, which was Keras's: the mean of the squares begins with zeros, not with ones."""

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for var in var_list:
            self._zeros_slot(var, "rms", self._name)
        super()._create_slots(var_list)


class AdaMaxOptimizer(_Both, tf.train.AdamOptimizer):
    """AdaMax (https://arxiv.org/abs/1412.6980, section 7): Adam, with the greatest gradient in place of its square."""

    def __init__(self, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8,
                 use_locking: bool = False, name: str = "AdaMax") -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        self._create_non_slot_variable(self._beta1, "beta1_power", min(var_list, key=lambda var: var.name))
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _power(self) -> tf.Variable:
        return self._get_non_slot_variable("beta1_power", graph=tf.get_default_graph())

    def _settings(self, var: tf.Variable) -> list[tf.Tensor]:
        return _cast(var, self._power(), self._lr_t, self._beta1_t, self._beta2_t, self._epsilon_t)

    def _dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        return _apply_ada_max(var, m, v, *self._settings(var), grad, use_locking=self._use_locking).op

    def _rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        power, rate, beta1, beta2, epsilon = self._settings(var)
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        new_v = tf.maximum(beta2 * tf.gather(v, indices), tf.abs(grad))
        change = rate / (1 - power) * new_m / (new_v + epsilon)
        with tf.control_dependencies([change]):
            return tf.group(*(update(kept, indices, values, use_locking=self._use_locking) for update, kept, values in (
                (tf.scatter_update, m, new_m), (tf.scatter_update, v, new_v), (tf.scatter_sub, var, change))))

    def _finish(self, update_ops: Sequence[tf.Operation], name_scope: str) -> tf.Operation:
        power = self._power()
        with tf.control_dependencies(update_ops), tf.colocate_with(power):
            update = power.assign(power * tf.cast(self._beta1_t, power.dtype.base_dtype),
                                  use_locking=self._use_locking)
        return tf.group(*update_ops, update, name=name_scope)


class _SignOptimizer(_Both):
    """An optimizer that goes further where a gradient has the sign of its moving average."""

    def __init__(self, learning_rate: Any, beta: Any, sign_decay_fn: Callable | None, use_locking: bool,
                 name: str) -> None:
        super().__init__(use_locking, name)
        self._rate, self._beta, self._decay_fn, self._decay = learning_rate, beta, sign_decay_fn, 1.0

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> tf.Operation:
        """As `tf.train.Optimizer.apply_gradients`; `sign_decay_fn` takes the global step."""
        if self._decay_fn is not None:
            self._decay = tf.convert_to_tensor(self._decay_fn(global_step))
        return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        for var in var_list:
            self._zeros_slot(var, "m", self._name)

    def _rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        rate, beta, decay = _cast(var, self._rate, self._beta, self._decay)
        m = self.get_slot(var, "m")
        # All of it decays, as in TensorFlow 1, and not only the rows with a gradient.
        dense = tf.scatter_nd(tf.cast(indices, tf.int32)[:, tf.newaxis], grad, tf.shape(m))
        new_m = tf.convert_to_tensor(m.assign(beta * m + (1 - beta) * dense, use_locking=self._use_locking))
        signs = tf.sign(grad) * tf.gather(tf.sign(new_m), indices)
        change = rate * self._factor(var, decay * signs) * grad
        return tf.group(new_m, tf.scatter_sub(var, indices, change, use_locking=self._use_locking))

    def _factor(self, var: tf.Variable, signs: tf.Tensor) -> tf.Tensor:
        raise NotImplementedError


class AddSignOptimizer(_SignOptimizer):
    """AddSign (https://arxiv.org/abs/1709.07417): `var -= rate * (alpha + decay * sign(g) * sign(m)) * g`."""

    def __init__(self, learning_rate: Any = 0.1, alpha: Any = 1.0, beta: Any = 0.9,
                 sign_decay_fn: Callable | None = None, use_locking: bool = False,
                 name: str = "AddSignOptimizer") -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._alpha = alpha

    def _dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        settings = _cast(var, self._rate, self._alpha, self._decay, self._beta)
        return _apply_add_sign(var, self.get_slot(var, "m"), *settings, grad, use_locking=self._use_locking).op

    def _factor(self, var: tf.Variable, signs: tf.Tensor) -> tf.Tensor:
        return _cast(var, self._alpha)[0] + signs


class PowerSignOptimizer(_SignOptimizer):
    """PowerSign (https://arxiv.org/abs/1709.07417): `var -= rate * base ** (decay * sign(g) * sign(m)) * g`."""

    def __init__(self, learning_rate: Any = 0.1, base: float = math.e, beta: Any = 0.9,
                 sign_decay_fn: Callable | None = None, use_locking: bool = False,
                 name: str = "PowerSignOptimizer") -> None:
        super().__init__(learning_rate, beta, sign_decay_fn, use_locking, name)
        self._log_base = math.log(base)

    def _dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        settings = _cast(var, self._rate, self._log_base, self._decay, self._beta)
        return _apply_power_sign(var, self.get_slot(var, "m"), *settings, grad, use_locking=self._use_locking).op

    def _factor(self, var: tf.Variable, signs: tf.Tensor) -> tf.Tensor:
        return tf.exp(_cast(var, self._log_base)[0] * signs)


class LARSOptimizer(_Both):
    """Momentum with a rate for each layer, by the norms of weights and gradient (https://arxiv.org/abs/1708.03888).

    Variables whose name has a part that is in `skip_list` get the rate itself. As in TensorFlow 1, a sparse gradient
    gets it as well.
    """

    def __init__(self, learning_rate: Any, momentum: Any = 0.9, weight_decay: float = 0.0001, eeta: float = 0.001,
                 epsilon: float = 0.0, name: str = "LARSOptimizer", skip_list: Sequence[str] | None = None,
                 use_nesterov: bool = False) -> None:
        for what, value in (("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{what} should be positive: {value}")
        super().__init__(use_locking=False, name=name)
        self._rate, self._momentum, self._weight_decay = learning_rate, momentum, weight_decay
        self._eeta, self._epsilon, self._skip_list, self._is_nesterov = eeta, epsilon, skip_list, use_nesterov

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        for var in var_list:
            self._zeros_slot(var, "momentum", self._name)

    def compute_lr(self, grad: tf.Tensor, var: tf.Variable) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the rate for a variable, and its gradient with that of the weight decay."""
        rate, = _cast(var, self._rate)
        if any(part in var.name for part in self._skip_list or ()):
            return rate, grad
        of_weights, of_gradient = tf.norm(var, ord=2), tf.norm(grad, ord=2)
        ratio = self._eeta * of_weights / (of_gradient + self._weight_decay * of_weights + self._epsilon)
        ratio = tf.where((of_weights > 0) & (of_gradient > 0), ratio, tf.ones_like(ratio))
        return rate * ratio, grad + self._weight_decay * var

    def _dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        rate, grad = self.compute_lr(grad, var)
        one, momentum = _cast(var, 1.0, self._momentum)
        return _apply_momentum(var, self.get_slot(var, "momentum"), one, grad * rate, momentum,
                               use_nesterov=self._is_nesterov).op

    def _rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        rate, momentum = _cast(var, self._rate, self._momentum)
        return _sparse_apply_momentum(var, self.get_slot(var, "momentum"), rate, grad, indices, momentum,
                                      use_nesterov=self._is_nesterov).op


class _Around(tf.train.Optimizer):
    """An optimizer that computes gradients, and keeps slots, as another one does."""

    def __init__(self, opt: tf.train.Optimizer, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._optimizer = opt

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list:
        """As the other one."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As the other one."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """As the other one."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self) -> list:
        """As the other one."""
        return self._optimizer.variables()


class MovingAverageOptimizer(_Around):
    """Keeps moving averages of the variables that it trains; `swapping_saver` saves them by the variables' names."""

    def __init__(self, opt: tf.train.Optimizer, average_decay: float = 0.9999, num_updates: Any = None,
                 sequential_update: bool = True) -> None:
        super().__init__(opt, False, type(self).__name__)
        self._average = tf.train.ExponentialMovingAverage(average_decay, num_updates=num_updates)
        self._is_sequential = sequential_update
        self._swapped: dict[str, str] | None = None  # name of a variable -> of its average, and the reverse

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> tf.Operation:
        """As the other one; then the averages are updated."""
        pairs = list(grads_and_vars)
        update = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        trained = [var for grad, var in pairs if grad is not None]
        with tf.control_dependencies([update] if self._is_sequential else []):
            averaging = self._average.apply(trained)
        names = {var.op.name: self._average.average(var).op.name for var in trained}
        self._swapped = {**names, **{average: var for var, average in names.items()}}
        return tf.group(update, averaging, name="train_with_avg")

    def swapping_saver(self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any) -> tf.train.Saver:
        """Returns a `tf.train.Saver` that saves and restores each average by the name of its variable.

        Raises:
          RuntimeError: no gradients were applied before.
          ValueError: a variable is saved, but its average is not, or the reverse.
        """
        if self._swapped is None:
            raise RuntimeError("Must call apply_gradients or minimize before creating the swapping_saver")
        by_name = var_list if isinstance(var_list, dict) else op_list_to_dict(var_list or tf.global_variables())
        of_names = {part.op.name: part for value in by_name.values()
                    for part in (value if isinstance(value, (list, tuple)) else [value]) if hasattr(part, "op")}
        of_names.update({key: value for key, value in by_name.items() if not isinstance(value, (list, tuple))})

        def swapped(key: str, value: Any) -> Any:
            other = self._swapped.get(key)
            if other is not None and other not in of_names:
                raise ValueError(f"Variable to swap {other} is not part of variables to save. This breaks "
                                 "MovingAverageOptimizer.")
            return value if other is None else of_names[other]
        return tf.train.Saver({
            key: [swapped(part.op.name, part) for part in value] if isinstance(value, list) else swapped(key, value)
            for key, value in by_name.items()}, name=name, **kwargs)


class VariableClippingOptimizer(_Around):
    """Clips variables after each update, so that their norms along some axes stay below a bound."""

    def __init__(self, opt: tf.train.Optimizer, vars_to_clip_dims: Mapping[tf.Variable, Sequence[int]],
                 max_norm: float, use_locking: bool = False, colocate_clip_ops_with_vars: bool = False,
                 name: str = "VariableClipping") -> None:
        super().__init__(opt, use_locking, name)
        self._axes, self._max_norm = {var: list(axes) for var, axes in vars_to_clip_dims.items()}, max_norm

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None) -> tf.Operation:
        """As the other one; then the variables are clipped, of one with a sparse gradient the rows that it has."""
        pairs = list(grads_and_vars)
        with tf.name_scope(name, self._name) as scope:
            update = self._optimizer.apply_gradients(pairs, global_step=global_step)
            with tf.control_dependencies([update]):
                clips = [self._clip(grad, var) for grad, var in pairs if grad is not None and var in self._axes]
            return tf.group(update, *clips, name=scope)

    def _clip(self, grad: Any, var: tf.Variable) -> Any:
        axes = self._axes[var]
        with tf.name_scope("clip_" + var.op.name), tf.colocate_with(var):
            if isinstance(grad, tf.Tensor) or 0 in axes:
                value = var.read_value()
                return var.assign_sub(value - tf.clip_by_norm(value, self._max_norm, axes),
                                      use_locking=self._use_locking)
            rows, _ = tf.unique(grad.indices)
            value = tf.gather(var, rows)
            return tf.scatter_update(var, rows, tf.clip_by_norm(value, self._max_norm, axes),
                                     use_locking=self._use_locking)


class MultitaskOptimizerWrapper:
    """Leaves variables, and their slots, as they are in steps in which their gradient is all zeros."""

    def __init__(self, opt: tf.train.Optimizer) -> None:
        if not isinstance(opt, tf.train.Optimizer):
            raise TypeError("Supplied optimizer must be an instance of tf.train.Optimizer")
        self._opt = opt
        for name in ("_apply_dense", "_resource_apply_dense", "_apply_sparse", "_resource_apply_sparse"):
            setattr(opt, name, types.MethodType(_unless_zero(getattr(opt, name)), opt))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opt, name)


def _unless_zero(apply: Callable) -> Callable:
    def call(_: Any, grad: Any, *args: Any) -> tf.Operation:
        def update() -> tf.Operation:
            with tf.control_dependencies([apply(grad, *args)]):
                return tf.no_op()
        return tf.cond(_is_zero(grad), tf.no_op, update)
    return call


def _is_zero(grad: Any) -> tf.Tensor:
    return tf.equal(tf.math.count_nonzero(grad.values if isinstance(grad, tf.IndexedSlices) else grad), 0)


def clip_gradients_by_global_norm(gradients_variables: Iterable, clip_norm: float = 20.0) -> tuple[list, tf.Tensor]:
    """Returns the pairs with clipped gradients, and the norm of all gradients."""
    gradients, variables = zip(*gradients_variables)
    norm = tf.global_norm(gradients)
    clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    return list(zip(clipped, variables)), norm


def clip_gradients_by_norm(optimizer: tf.train.Optimizer, clip_norm: float) -> tf.train.Optimizer:
    """Returns an optimizer as the given one that clips all gradients together to a norm before it applies them."""
    clipping, apply = copy.copy(optimizer), optimizer.apply_gradients

    def clip_and_apply(grads_and_vars: Iterable, *args: Any, **kwargs: Any) -> tf.Operation:
        return apply(clip_gradients_by_global_norm(grads_and_vars, clip_norm)[0], *args, **kwargs)
    clipping.apply_gradients = clip_and_apply
    return clipping


def get_linear_decay_fn(decay_steps: int) -> Callable:
    """Returns a function of the global step that goes from 1 to 0 in so many steps."""
    return lambda global_step: tf.maximum(0.0, 1.0 - _done(global_step, decay_steps))


def get_cosine_decay_fn(decay_steps: int, num_periods: float = 0.5, zero_after: float | None = None) -> Callable:
    """Returns a function of the global step that follows a cosine; it is 0 after so many periods."""
    def decay(global_step: Any) -> tf.Tensor:
        fraction = 2.0 * num_periods * _done(global_step, decay_steps)
        return _cosine(fraction, None if zero_after is None else fraction >= 2 * zero_after)
    return decay


def get_restart_decay_fn(decay_steps: int, num_periods: int = 1, zero_after: float | None = None) -> Callable:
    """Returns a function of the global step that follows half a cosine in each period; 0 after so many of them."""
    def decay(global_step: Any) -> tf.Tensor:
        periods = num_periods * _done(global_step, decay_steps)
        fraction = tf.floormod(periods * decay_steps, decay_steps) / decay_steps
        return _cosine(fraction, None if zero_after is None else periods >= zero_after)
    return decay


def _done(global_step: Any, decay_steps: int) -> tf.Tensor:
    if global_step is None:
        raise ValueError("global_step is required for a decay of signs.")
    return tf.cast(tf.minimum(tf.cast(global_step, tf.int64), decay_steps), tf.float32) / decay_steps


def _cosine(fraction: tf.Tensor, is_over: tf.Tensor | None) -> tf.Tensor:
    decayed = 0.5 * (1.0 + tf.cos(math.pi * fraction))
    return decayed if is_over is None else tf.where(is_over, tf.zeros_like(decayed), decayed)
