"""tf.contrib.opt's optimizers outside the graph: SciPy's minimize, say, chooses the values of the variables.

    minimize(session)    the values of the variables as one float64 vector --> _minimize(...) --> assigned again

As many public jobs train by L-BFGS so: physics-informed networks, style transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf


class ExternalOptimizerInterface:
    """Minimizes a loss by an algorithm that runs in Python; a class that derives from this one has it in `_minimize`.

    Gradients, values and bounds are packed into vectors, in the order of the variables.
    """

    def __init__(
        self, loss: tf.Tensor, var_list: Sequence[Any] | None = None, equalities: Sequence[tf.Tensor] | None = None,
        inequalities: Sequence[tf.Tensor] | None = None, var_to_bounds: Mapping[Any, tuple] | None = None,
        **optimizer_kwargs: Any,
    ) -> None:
        """Adds the gradients to the graph.

        Args:
          loss: a scalar.
          var_list: the variables; by default the trainable ones.
          equalities: tensors that must be 0 in the end.
          inequalities: tensors that must be at least 0.
          var_to_bounds: variable -> its lower and its upper bound: numbers, arrays of its shape, or None.
          **optimizer_kwargs: of the algorithm.
        """
        self._loss, self.optimizer_kwargs = loss, optimizer_kwargs
        self._equalities, self._inequalities = list(equalities or []), list(inequalities or [])
        self._vars = list(tf.trainable_variables() if var_list is None else var_list)
        self._packed_bounds = self._pack_bounds(var_to_bounds or {})
        self._new_values = [tf.placeholder(var.dtype.base_dtype, var.shape) for var in self._vars]
        self._assign = tf.group(*(tf.assign(var, value) for var, value in zip(self._vars, self._new_values)))
        self._loss_grad = self._packed_gradient(loss)
        self._equality_grads = [self._packed_gradient(value) for value in self._equalities]
        self._inequality_grads = [self._packed_gradient(value) for value in self._inequalities]

    def minimize(
        self, session: tf.Session | None = None, feed_dict: Mapping | None = None,
        fetches: Sequence[Any] | None = None, step_callback: Callable[[np.ndarray], Any] | None = None,
        loss_callback: Callable[..., Any] | None = None, **run_kwargs: Any,
    ) -> None:
        """Minimizes the loss, and leaves the values that were found in the variables.

        Args:
          session: by default the default session.
          feed_dict: for each evaluation.
          fetches: what is evaluated with the loss, for `loss_callback`.
          step_callback: is called with the packed variables after each step of the algorithm.
          loss_callback: is called with the values of `fetches` after each evaluation of the loss.
          **run_kwargs: for `session.run`.
        """
        session = session or tf.get_default_session()

        def run(targets: Any, packed: np.ndarray) -> Any:
            # What is fed for a variable stands for its value: fed_variables.py.
            feeds = {**dict(zip(self._vars, self._unpack(packed))), **(feed_dict or {})}
            return session.run(targets, feeds, **run_kwargs)

        def loss_and_gradient(packed: np.ndarray) -> tuple[Any, np.ndarray]:
            loss, gradient, fetched = run([self._loss, self._loss_grad, list(fetches or [])], packed)
            if loss_callback is not None:
                loss_callback(*fetched)
            return loss, gradient.astype(np.float64)

        def functions(tensors: Sequence[tf.Tensor]) -> list[Callable]:
            return [lambda packed, tensor=tensor: np.asarray(run(tensor, packed), np.float64) for tensor in tensors]

        initial = np.concatenate([np.ravel(value) for value in session.run(self._vars)] or [[]]).astype(np.float64)
        packed = self._minimize(
            initial_val=initial, loss_grad_func=loss_and_gradient,
            equality_funcs=functions(self._equalities), equality_grad_funcs=functions(self._equality_grads),
            inequality_funcs=functions(self._inequalities), inequality_grad_funcs=functions(self._inequality_grads),
            packed_bounds=self._packed_bounds, step_callback=step_callback or (lambda *_: None),
            optimizer_kwargs=self.optimizer_kwargs)
        session.run(self._assign, dict(zip(self._new_values, self._unpack(np.asarray(packed)))), **run_kwargs)

    def _minimize(self, **arguments: Any) -> np.ndarray:
        """Returns the packed values of the minimum; see `ScipyOptimizerInterface` for the arguments."""
        raise NotImplementedError(f"{type(self).__name__} has no _minimize")

    def _packed_gradient(self, value: tf.Tensor) -> tf.Tensor:
        """Returns the gradient of a scalar [values of all variables]; the Jacobian [elements, values] of a vector."""
        value = tf.convert_to_tensor(value)
        if value.shape.rank:
            return tf.stack([self._packed_gradient(element) for element in tf.unstack(tf.reshape(value, [-1]))])
        gradients = tf.gradients(value, self._vars)
        return tf.concat([
            tf.reshape(tf.zeros_like(var) if gradient is None else gradient, [-1])
            for var, gradient in zip(self._vars, gradients)], 0)

    def _pack_bounds(self, var_to_bounds: Mapping[Any, tuple]) -> list[tuple] | None:
        """Returns the bounds of each value, or None if no variable has any; a list of 2 arrays or numbers for each."""
        by_name = {var.name: bounds for var, bounds in var_to_bounds.items()}
        if not by_name:
            return None
        packed: list[tuple] = []
        for var in self._vars:
            lower, upper = by_name.get(var.name, (None, None))
            bounds = (-np.inf if lower is None else lower, np.inf if upper is None else upper)
            packed += zip(*(np.broadcast_to(bound, var.shape.as_list()).ravel() for bound in bounds))
        return packed

    def _unpack(self, packed: np.ndarray) -> list[np.ndarray]:
        shapes = [var.shape.as_list() for var in self._vars]
        parts = np.split(packed, np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1])
        return [part.reshape(shape).astype(var.dtype.base_dtype.as_numpy_dtype)
                for part, shape, var in zip(parts, shapes, self._vars)]


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """`scipy.optimize.minimize`: L-BFGS-B by default, SLSQP with constraints; keyword arguments are those of it."""

    _DEFAULT_METHOD = "L-BFGS-B"

    def _minimize(
        self, *, initial_val: np.ndarray, loss_grad_func: Callable, equality_funcs: Sequence[Callable],
        equality_grad_funcs: Sequence[Callable], inequality_funcs: Sequence[Callable],
        inequality_grad_funcs: Sequence[Callable], packed_bounds: Sequence[tuple] | None, step_callback: Callable,
        optimizer_kwargs: Mapping[str, Any],
    ) -> np.ndarray:
        if "fun" in optimizer_kwargs or "jac" in optimizer_kwargs:
            raise ValueError("ScipyOptimizerInterface: got fun or jac; allowed: other arguments of minimize")
        from scipy import optimize  # noqa: PLC0415 (only these jobs need it)

        constraints = [
            {"type": kind, "fun": function, "jac": gradient}
            for kind, functions, gradients in (
                ("eq", equality_funcs, equality_grad_funcs), ("ineq", inequality_funcs, inequality_grad_funcs))
            for function, gradient in zip(functions, gradients)]
        arguments = {"method": "SLSQP" if constraints else self._DEFAULT_METHOD, "callback": step_callback,
                     "bounds": packed_bounds, **optimizer_kwargs}
        if constraints:
            arguments["constraints"] = constraints
        result = optimize.minimize(loss_grad_func, initial_val, jac=True, **arguments)
        tf.logging.info("Optimization terminated with:\n  Message: %s\n  Objective function value: %s\n"
                        "  Number of iterations: %s\n  Number of functions evaluations: %s",
                        result.message, result.fun, getattr(result, "nit", None), getattr(result, "nfev", None))
        return result.x
