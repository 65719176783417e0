"""Optimizers of tf.contrib.opt that precondition gradients by matrices: Shampoo and GGT."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

_MAX_ITERATIONS = 100
_ROOT_ACCURACY = 1e-6
_SPARSE = "GGTOptimizer takes no sparse gradients, such as those of tf.nn.embedding_lookup"


class ShampooOptimizer(tf.train.Optimizer):
    """Shampoo (https://arxiv.org/abs/1802.09568): Adagrad with a matrix for each dimension of a variable.

    A dimension of more than `max_matrix_size` has the diagonal of its matrix only. A parameter that may be a function
    takes the number of the step, a float32 tensor that begins with 1.
    """

    def __init__(self, global_step: Any = 0, max_matrix_size: int = 768, gbar_decay: Any = 0.0,
                 gbar_weight: Any = 1.0, mat_gbar_decay: Any = 1.0, mat_gbar_weight: Any = 1.0,
                 learning_rate: Any = 1.0, svd_interval: Any = 1, precond_update_interval: Any = 1,
                 epsilon: float = 1e-4, alpha: Any = 0.5, use_iterative_root: bool = False,
                 use_locking: bool = False, name: str = "Shampoo") -> None:
        """Creates the optimizer.

        Args:
          global_step: the number of steps that were taken, which the functions of steps and the intervals need.
          max_matrix_size: of a dimension that gets a whole matrix.
          gbar_decay: of the mean of the gradients, a number or a function; 0 for the gradient itself.
          gbar_weight: of a gradient in this mean, a number or a function.
          mat_gbar_decay: of the matrices, a number or a function; 1 for sums.
          mat_gbar_weight: of a gradient in the matrices, a number or a function.
          learning_rate: a number or a function.
          svd_interval: steps after which the powers of the matrices are computed anew, a number or a function.
          precond_update_interval: steps after which the matrices are, a number or a function.
          epsilon: is added to the diagonal of a matrix.
          alpha: the power of all matrices together, a number or a function.
          use_iterative_root: computes powers by iterations instead of a decomposition.
          use_locking: see `tf.train.Optimizer`.
          name: see `tf.train.Optimizer`.
        """
        super().__init__(use_locking, name)
        self._global_step = tf.cast(global_step, tf.float32)
        self._max_size, self._rate, self._epsilon, self._alpha = max_matrix_size, learning_rate, epsilon, alpha
        self._gbar, self._mat_gbar = (gbar_decay, gbar_weight), (mat_gbar_decay, mat_gbar_weight)
        self._svd_interval, self._matrix_interval = svd_interval, precond_update_interval
        self._is_iterative = use_iterative_root

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        for var in var_list:
            with tf.colocate_with(var):
                self._zeros_slot(var, "gbar", self._name)
                for axis, size in enumerate(var.shape.as_list()):
                    if size > self._max_size:
                        self._get_or_make_slot(var, tf.zeros([size]), f"Gbar_{axis}", self._name)
                        continue
                    if self._keeps_powers():
                        self._get_or_make_slot(var, tf.eye(size), f"H_{axis}", self._name)
                    self._get_or_make_slot(var, tf.zeros([size, size]), f"Gbar_{axis}", self._name)

    def _keeps_powers(self) -> bool:
        return callable(self._svd_interval) or self._svd_interval > 1

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._update(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._update(grad, var)

    def _apply_sparse(self, grad: tf.IndexedSlices, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_sparse(grad.values, var, grad.indices)

    def _resource_apply_sparse(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor) -> tf.Operation:
        if int(var.shape[0]) > self._max_size and self._gbar[0] == 0.0:
            return self._update(grad, var, indices)
        return self._update(tf.scatter_nd(indices[:, tf.newaxis], grad, tf.shape(var, out_type=indices.dtype)), var)

    def _update(self, grad: tf.Tensor, var: tf.Variable, indices: tf.Tensor | None = None) -> tf.Operation:
        """Updates a variable, or some of its rows, by the gradient times the power of each matrix."""
        step = self._global_step + 1
        if indices is None:
            decay, weight = (_at(step, value) for value in self._gbar)
            change = _weighted(self.get_slot(var, "gbar"), self._gbar[0], decay, weight * grad)
        else:
            change = grad
        sizes = var.shape.as_list()
        power = -_at(step, self._alpha) / len(sizes)
        # Each product moves the first dimension to the end, so after all of them the order is the first one.
        for axis, size in enumerate(sizes):
            if size <= self._max_size:
                change = tf.tensordot(change, self._matrix(grad, var, axis, power, step), axes=([0], [0]))
            else:
                diagonal = self._diagonal(grad, var, axis, power, indices)
                change = tf.transpose(change, [*range(1, len(sizes)), 0]) * diagonal
        change *= _at(step, self._rate)
        if indices is not None:
            return tf.scatter_add(var, indices, -change).op
        return tf.assign_sub(var, change).op

    def _matrix(self, grad: tf.Tensor, var: tf.Variable, axis: int, power: Any, step: tf.Tensor) -> tf.Tensor:
        """Returns the power of the matrix of an axis, [size, size]."""
        kept = self.get_slot(var, f"Gbar_{axis}")
        decay, weight = (_at(step, value) for value in self._mat_gbar)
        interval, others = _at(step, self._matrix_interval), _others(var, axis)

        def updated() -> tf.Tensor:
            outer = tf.tensordot(grad, grad, axes=(others, others))
            return _weighted(kept, self._mat_gbar[0], decay, weight * interval * outer)
        matrix = tf.cond(step % interval < 1, updated, lambda: tf.convert_to_tensor(kept))
        size = int(var.shape[axis])
        matrix /= float(size)
        if not self._keeps_powers():
            return self._power(matrix, size, power)
        kept_power = self.get_slot(var, f"H_{axis}")
        return tf.cond(step % _at(step, self._svd_interval) < 1,
                       lambda: tf.convert_to_tensor(tf.assign(kept_power, self._power(matrix, size, power))),
                       lambda: tf.convert_to_tensor(kept_power))

    def _power(self, matrix: tf.Tensor, size: int, power: Any) -> tf.Tensor:
        if self._is_iterative:
            root = matrix_square_root(matrix, size, _MAX_ITERATIONS, self._epsilon)
            return matrix_inverse_pth_root(root, size, 2 * power, _MAX_ITERATIONS, _ROOT_ACCURACY, ridge_epsilon=0.0)
        if size == 1:
            return (matrix + self._epsilon) ** power
        values, left, right = tf.linalg.svd(matrix + self._epsilon * tf.eye(size), full_matrices=True)
        return tf.matmul(right * tf.maximum(values, self._epsilon) ** power, left, transpose_b=True)

    def _diagonal(self, grad: tf.Tensor, var: tf.Variable, axis: int, power: Any,
                  indices: tf.Tensor | None) -> tf.Tensor:
        """Returns the power of the diagonal of an axis, [size], or of some of its rows."""
        kept, others = self.get_slot(var, f"Gbar_{axis}"), _others(var, axis)
        step = self._global_step + 1
        decay, weight = (_at(step, value) for value in self._mat_gbar)
        outer = grad * grad
        if others:
            outer = tf.reduce_sum(outer, others) / (1.0 if indices is not None else float(var.shape[axis]))
        if axis or indices is None:
            values = _weighted(kept, self._mat_gbar[0], decay, weight * outer)
        elif self._mat_gbar[0] != 1.0:
            raise ValueError(f"ShampooOptimizer: a sparse gradient of {var.op.name}, whose first dimension is over "
                             "max_matrix_size, needs mat_gbar_decay=1.0")
        else:
            with tf.control_dependencies([tf.scatter_add(kept, indices, weight * outer)]):
                values = tf.gather(kept, indices)
        return tf.where(values > 0, values ** power, tf.zeros_like(values))


def _at(step: tf.Tensor, value: Any) -> Any:
    """Returns a parameter at a step."""
    return value(step) if callable(value) else value


def _others(var: tf.Variable, axis: int) -> list[int]:
    return [other for other in range(var.shape.rank) if other != axis]


def _weighted(kept: tf.Variable, given_decay: Any, decay: Any, share: tf.Tensor) -> tf.Tensor:
    """Updates a variable to decay * variable + share, and returns that; a decay of 0 leaves the variable as it is."""
    if given_decay == 0.0:
        return share
    if given_decay != 1.0:
        share += (decay - 1) * kept
    return tf.convert_to_tensor(tf.assign_add(kept, share))


def matrix_square_root(mat_a: tf.Tensor, mat_a_size: int, iter_count: int = 100,
                       ridge_epsilon: float = 1e-4) -> tf.Tensor:
    """Returns the square root of a symmetric matrix, by Newton's iteration until the error rises.

    The iteration is the one of N. Higham, Stable iterations for the matrix square root (1997), equation 2.6b.
    """
    identity = tf.eye(mat_a_size)
    matrix = mat_a + ridge_epsilon * identity
    norm = tf.sqrt(tf.reduce_sum(matrix * matrix))

    def improve(index: tf.Tensor, root: tf.Tensor, _: tf.Tensor, inverse: tf.Tensor, error: tf.Tensor,
                __: tf.Tensor) -> tuple:
        factor = 0.5 * (3.0 * identity - tf.matmul(inverse, root))
        new_root = tf.matmul(root, factor)
        scaled = new_root * tf.sqrt(norm)
        residual = matrix - tf.matmul(scaled, scaled)
        new_error = tf.sqrt(tf.reduce_sum(residual * residual)) / norm
        return index + 1, new_root, root, tf.matmul(factor, inverse), new_error, error
    start = matrix / norm
    _, _, root, *_ = tf.while_loop(
        lambda index, _, __, ___, error, last_error: (index < iter_count) & (error < last_error), improve,
        [0, start, start, identity, norm, norm + 1.0])
    return root * tf.sqrt(norm)


def matrix_inverse_pth_root(mat_g: tf.Tensor, mat_g_size: int, alpha: float, iter_count: int = 100,
                            epsilon: float = 1e-6, ridge_epsilon: float = 1e-6) -> tf.Tensor:
    """Returns a symmetric matrix to the power of alpha, which is -1/p for a whole number p.

    By C. Guo and N. Higham, A Schur-Newton method for the matrix pth root and its inverse (2006), equation 3.2.
    """
    if mat_g_size == 1:
        return (mat_g + ridge_epsilon) ** alpha
    identity = tf.eye(mat_g_size)
    matrix = mat_g + ridge_epsilon * identity
    scale = (1 - 1 / alpha) / (2 * tf.norm(matrix))
    p = -1.0 / alpha
    if p != int(p) or p < 1:
        raise ValueError(f"the power of a matrix by iterations is -1/p for a whole number p, got {alpha}")

    def improve(index: tf.Tensor, rest: tf.Tensor, root: tf.Tensor) -> tuple:
        factor = (1 - alpha) * identity + alpha * rest
        return index + 1, tf.matmul(_whole_power(factor, int(p)), rest), tf.matmul(root, factor)
    *_, root = tf.while_loop(
        lambda index, rest, _: (index < iter_count) & (tf.reduce_max(tf.abs(rest - identity)) > epsilon), improve,
        [0, matrix * scale, identity * scale ** -alpha])
    return root


def _whole_power(matrix: tf.Tensor, power: int) -> tf.Tensor:
    """Returns a matrix to the power of a whole number, by squares."""
    if power == 1:
        return matrix
    half = _whole_power(tf.matmul(matrix, matrix), power // 2)
    return tf.matmul(matrix, half) if power % 2 else half


class GGTOptimizer(tf.train.Optimizer):
    """GGT (https://arxiv.org/abs/1806.02958): full-matrix Adagrad over the last `window` moments of all variables."""

    def __init__(self, learning_rate: Any = 0.001, beta1: Any = 0.9, use_locking: bool = False, name: str = "GGT",
                 window: int = 10, eps: Any = 1e-4, svd_eps: Any = 1e-6, sigma_eps: Any = 1e-2) -> None:
        """Creates the optimizer.

        Args:
          learning_rate: a number, or a function without arguments, as all others but the window.
          beta1: the decay of the moments.
          use_locking: see `tf.train.Optimizer`.
          name: see `tf.train.Optimizer`.
          window: the number of moments that are kept.
          eps: the least eigenvalue for which what is outside of the window's space counts.
          svd_eps: is added to the diagonal of the matrix that is decomposed.
          sigma_eps: is added to the square roots of its eigenvalues.
        """
        super().__init__(use_locking, name)
        self._window = window
        self._settings = (learning_rate, beta1, eps, svd_eps, sigma_eps)
        self._places: dict[str, tuple[int, int]] = {}  # of a variable, in the vector of all: start, end
        self._updated: list[tf.Variable] = []

    def _create_slots(self, var_list: Iterable[tf.Variable]) -> None:
        place = 0
        for var in sorted(var_list, key=lambda var: var.name):
            size = math.prod(var.shape.as_list())
            self._places[var.name] = (place, place + size)
            place += size
        first = min(var_list, key=lambda var: var.name)
        dtype = first.dtype.base_dtype
        for name, shape in (("global_step", []), ("grad_buffer", [self._window, place]), ("moment1", [place]),
                            ("flat_grad", [place])):
            self._create_non_slot_variable(tf.zeros(shape, dtype), name, first)

    def _kept(self, name: str) -> tf.Variable:
        return self._get_non_slot_variable(name, graph=tf.get_default_graph())

    def _prepare(self) -> None:
        self._updated = []

    def _apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        return self._resource_apply_dense(grad, var)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable) -> tf.Operation:
        self._updated.append(var)
        return tf.scatter_update(self._kept("flat_grad"), tf.range(*self._places[var.name]), tf.reshape(grad, [-1])).op

    def _apply_sparse(self, grad: Any, var: tf.Variable) -> tf.Operation:
        raise NotImplementedError(_SPARSE)

    def _resource_apply_sparse(self, grad: Any, var: tf.Variable, indices: Any) -> tf.Operation:
        raise NotImplementedError(_SPARSE)

    def _finish(self, update_ops: Sequence[tf.Operation], name_scope: str) -> tf.Operation:
        with tf.control_dependencies(update_ops), tf.colocate_with(self._kept("flat_grad")):
            change = self._change()
        updates = []
        for var in self._updated:
            start, end = self._places[var.name]
            updates.append(tf.assign_sub(var, tf.reshape(change[start:end], var.shape)).op)
        return tf.group(*update_ops, *updates, name=name_scope)

    def _change(self) -> tf.Tensor:
        """Returns what the step takes away from the vector of all variables."""
        moment, buffer = self._kept("moment1"), self._kept("grad_buffer")
        dtype = moment.dtype.base_dtype
        rate, beta1, eps, svd_eps, sigma_eps = (
            tf.cast(value() if callable(value) else value, dtype) for value in self._settings)
        step = tf.convert_to_tensor(tf.assign_add(self._kept("global_step"), tf.ones([], dtype)))
        new = beta1 * moment + (1 - beta1) * self._kept("flat_grad").read_value()
        new = tf.convert_to_tensor(tf.assign(moment, new))
        row = tf.floormod(tf.cast(step - 1, tf.int32), self._window)
        with tf.control_dependencies([tf.scatter_update(buffer, row, new)]):
            rows = buffer.read_value() / tf.sqrt(tf.minimum(step, tf.cast(self._window, dtype)))
        values, vectors, _ = tf.linalg.svd(tf.matmul(rows, rows, transpose_b=True)
                                           + tf.eye(self._window, dtype=dtype) * svd_eps)
        roots = tf.sqrt(values)

        def inside(factors: tf.Tensor) -> tf.Tensor:
            """Returns the part of the moment in the space of the window, with a factor for each eigenvector."""
            share = tf.linalg.matvec(vectors, tf.linalg.matvec(rows, new), transpose_a=True)
            return tf.linalg.matvec(rows, tf.linalg.matvec(vectors, factors * share), transpose_a=True)
        head, least = inside(1 / (roots + sigma_eps) ** 3), tf.reduce_min(roots)
        return rate * tf.cond(least > eps, lambda: head + (new - inside(1 / values)) / least, lambda: head)
