"""Optimizers of tf.contrib.opt: over those of tf.train, with the same slots."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

from ps_train.parts.legacy.names.reference_code import of_either

_apply_adagrad, _sparse_apply_adagrad = of_either("apply_adagrad"), of_either("sparse_apply_adagrad")


class LazyAdamOptimizer(tf.train.AdamOptimizer):
    """Adam (https://arxiv.org/abs/1412.6980) that leaves the rows without a gradient as they are, moments and all.

    Adam itself moves every row of an embedding in each step, by its moments.
    """

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._apply_rows(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        return self._apply_rows(grad, var, indices)

    def powers(self, var: tf.Variable) -> tuple[tf.Variable, tf.Variable]:
        """Returns the powers of beta1 and beta2 of this step, for a variable."""
        return self._get_beta_accumulators()

    def _apply_rows(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        """Updates rows of a variable by grad, [rows, ...].

        The indices, int32 or int64 [rows], are unique: `apply_gradients` has added the gradients of equal ones.
        """
        beta1, beta2, epsilon, rate, beta1_power, beta2_power = (
            tf.cast(value, var.dtype.base_dtype)
            for value in (self._beta1_t, self._beta2_t, self._epsilon_t, self._lr_t, *self.powers(var)))
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        new_m = beta1 * tf.gather(m, indices) + (1 - beta1) * grad
        new_v = beta2 * tf.gather(v, indices) + (1 - beta2) * tf.square(grad)
        rate *= tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        return tf.group(
            tf.scatter_update(m, indices, new_m, use_locking=self._use_locking),
            tf.scatter_update(v, indices, new_v, use_locking=self._use_locking),
            tf.scatter_sub(var, indices, rate * new_m / (tf.sqrt(new_v) + epsilon), use_locking=self._use_locking))


class AdamGSOptimizer(tf.train.AdamOptimizer):
    """Adam that takes the number of steps from a global step, and not from variables of its own."""

    def __init__(self, global_step: Any = 0, learning_rate: Any = 0.001, beta1: Any = 0.9, beta2: Any = 0.999,
                 epsilon: Any = 1e-8, use_locking: bool = False, name: str = "Adam") -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._global_step = global_step
        self._step: tf.Tensor | None = None

    def _create_slots(self, var_list: Sequence[tf.Variable]) -> None:
        for var in var_list:
            self._zeros_slot(var, "m", self._name)
            self._zeros_slot(var, "v", self._name)

    def _prepare(self) -> None:
        super()._prepare()
        self._step = tf.cast(tf.identity(self._global_step) + 1, tf.float32)

    def _get_beta_accumulators(self) -> tuple[tf.Tensor, tf.Tensor]:
        return self._beta1_t ** self._step, self._beta2_t ** self._step

    def _finish(self, update_ops: Sequence[tf.Operation], name_scope: str) -> tf.Operation:
        return tf.group(*update_ops, name=name_scope)


class LazyAdamGSOptimizer(AdamGSOptimizer, LazyAdamOptimizer):
    """`AdamGSOptimizer` that leaves the rows without a gradient as they are, as `LazyAdamOptimizer` does."""


class RegAdagradOptimizer(tf.train.AdagradOptimizer):
    """Adagrad whose accumulators some of the updates leave as they are, such as those of a regularization loss.

        with optimizer.avoid_updating_slots():
            regularize = optimizer.minimize(regularization_loss)
    """

    def __init__(self, learning_rate: Any, initial_accumulator_value: float = 0.1, use_locking: bool = False,
                 name: str = "RegAdagrad") -> None:
        super().__init__(learning_rate, initial_accumulator_value, use_locking, name)
        self._updates_slots = True

    @contextlib.contextmanager
    def avoid_updating_slots(self) -> Iterator[None]:
        """Lets the updates that are added to the graph inside use the accumulators without changing them."""
        before, self._updates_slots = self._updates_slots, False
        try:
            yield
        finally:
            self._updates_slots = before

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._apply(_apply_adagrad, var, grad)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._apply(_apply_adagrad, var, grad)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._apply(_sparse_apply_adagrad, var, grad.values, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        return self._apply(_sparse_apply_adagrad, var, grad, indices)

    def _apply(self, apply: Callable, var: tf.Variable, *gradient: tf.Tensor) -> tf.Operation:
        rate = tf.cast(self._learning_rate_tensor, var.dtype.base_dtype)
        return apply(var, self.get_slot(var, "accumulator"), rate, *gradient, use_locking=self._use_locking,
                     update_slots=self._updates_slots).op


def apply_adam(
    optimizer: tf.train.AdamOptimizer, grad: tf.Tensor, var: tf.Variable, *, powers: Sequence[Any],
    use_nesterov: bool = False,
) -> tf.Operation:
    """Returns the operation that updates a variable by a dense gradient, with these powers of beta1 and beta2."""
    m, v = optimizer.get_slot(var, "m"), optimizer.get_slot(var, "v")
    settings = (tf.cast(value, var.dtype.base_dtype) for value in (
        *powers, optimizer._lr_t, optimizer._beta1_t, optimizer._beta2_t, optimizer._epsilon_t))  # noqa: SLF001
    arguments = dict(zip(("beta1_power", "beta2_power", "lr", "beta1", "beta2", "epsilon"), settings), grad=grad,
                     use_locking=optimizer._use_locking, use_nesterov=use_nesterov)  # noqa: SLF001
    if hasattr(var, "handle"):
        return tf.raw_ops.ResourceApplyAdam(var=var.handle, m=m.handle, v=v.handle, **arguments)
    return tf.raw_ops.ApplyAdam(
        var=var._ref(), m=m._ref(), v=v._ref(), **arguments).op  # noqa: SLF001 (as the optimizers of tf.train)


class NadamOptimizer(tf.train.AdamOptimizer):
    """Adam with Nesterov's momentum (http://cs229.stanford.edu/proj2015/054_report.pdf)."""

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return apply_adam(self, grad, var, powers=self._get_beta_accumulators(), use_nesterov=True)

    def _apply_sparse_shared(
        self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor, scatter_add: Callable
    ) -> tf.Operation:
        """Updates rows; the moments of all rows decay, as Adam's do, but the variable's other rows stay."""
        beta1, beta2, epsilon, rate, beta1_power, beta2_power = (
            tf.cast(value, var.dtype.base_dtype) for value in (
                self._beta1_t, self._beta2_t, self._epsilon_t, self._lr_t, *self._get_beta_accumulators()))
        m, v = self.get_slot(var, "m"), self.get_slot(var, "v")
        shares = ((m, beta1, (1 - beta1) * grad), (v, beta2, (1 - beta2) * tf.square(grad)))
        rows = []
        for slot, beta, share in shares:
            with tf.control_dependencies([tf.assign(slot, slot * beta, use_locking=self._use_locking)]):
                rows.append(tf.gather(scatter_add(slot, indices, share), indices))
        rate *= tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        ahead = beta1 * rows[0] + shares[0][2]
        return tf.group(scatter_add(var, indices, -rate * ahead / (tf.sqrt(rows[1]) + epsilon)))


class DecoupledWeightDecayExtension:
    """Decoupled weight decay (https://arxiv.org/abs/1711.05101): `var -= weight_decay * var` before each update.

    Of a variable with a sparse gradient, the rows that it has decay.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        self._weight_decay = weight_decay
        self._decayed: set[str] | None = None
        super().__init__(*args, **kwargs)

    def minimize(self, *args: Any, decay_var_list: list | None = None, **kwargs: Any) -> tf.Operation:
        """As `tf.train.Optimizer.minimize`; `decay_var_list` are the variables that decay, by default all."""
        self._decayed = None if decay_var_list is None else {var.op.name for var in decay_var_list}
        return super().minimize(*args, **kwargs)

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: str | None = None,
                        decay_var_list: list | None = None) -> tf.Operation:
        """As `tf.train.Optimizer.apply_gradients`; `decay_var_list` are the variables that decay, by default all."""
        if decay_var_list is not None:
            self._decayed = {var.op.name for var in decay_var_list}
        pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
        # The gradients are those of the variables before they decay.
        with tf.control_dependencies([grad.op for grad, _ in pairs]):
            return super().apply_gradients(pairs, global_step=global_step, name=name)

    def _decay(self, var: tf.Variable, indices: Any = None) -> list[tf.Operation]:
        """Returns the operation by which a variable, or rows of it, decay, where the variable is; none if it does not.

        TensorFlow calls this, by way of the methods below, on the device of the variable.
        """
        if self._decayed is not None and var.op.name not in self._decayed:
            return []
        rate = tf.cast(self._weight_decay() if callable(self._weight_decay) else self._weight_decay,
                       var.dtype.base_dtype)
        if indices is None:
            return [var.assign_sub(rate * var, use_locking=self._use_locking).op]
        return [tf.scatter_sub(var, indices, rate * tf.gather(var, indices), use_locking=self._use_locking).op]

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(var)):
            return super()._apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(var)):
            return super()._resource_apply_dense(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        with tf.control_dependencies(self._decay(var, grad.indices)):
            return super()._apply_sparse(grad, var)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies(self._decay(var, indices)):
            return super()._resource_apply_sparse(grad, var, indices)


def extend_with_decoupled_weight_decay(base_optimizer: type[tf.train.Optimizer]) -> type:
    """Returns a class of optimizers (weight_decay, ...) whose other arguments are those of a class."""
    return type("OptimizerWithDecoupledWeightDecay", (DecoupledWeightDecayExtension, base_optimizer), {})


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
    """Adam with decoupled weight decay."""

    def __init__(self, weight_decay: Any, learning_rate: Any = 0.001, beta1: float = 0.9, beta2: float = 0.999,
                 epsilon: float = 1e-8, use_locking: bool = False, name: str = "AdamW") -> None:
        """Takes the share of each variable that an update takes away, and Adam's arguments."""
        super().__init__(weight_decay, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon,
                         use_locking=use_locking, name=name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.train.MomentumOptimizer):
    """Momentum with decoupled weight decay."""

    def __init__(self, weight_decay: Any, learning_rate: Any, momentum: Any, use_locking: bool = False,
                 name: str = "MomentumW", use_nesterov: bool = False) -> None:
        """Takes the share of each variable that an update takes away, and Momentum's arguments."""
        super().__init__(weight_decay, learning_rate=learning_rate, momentum=momentum, use_locking=use_locking,
                         name=name, use_nesterov=use_nesterov)
