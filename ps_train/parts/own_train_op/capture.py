"""Records the optimizers that a model_fn creates and the gradients that it passes to them, and applies nothing.

    with recording() as captured:
        model_fn(...)       optimizer.apply_gradients(pairs) --> Captured(optimizer, pairs, ...), and a no-op instead

The no-op has no inputs. What applies the gradients makes it run after them, so operations that the model runs after its
update run after it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import gradients_util
from tensorflow.python.ops.variables import PartitionedVariable

from ps_train.graph import transfer

_WRAPPER = "SyncReplicasOptimizer"  # TensorFlow's class and ps_train's
_recorders = threading.local()  # the threads of a test build the graphs of several workers at once
_patching = threading.Lock()


class Differentiated(NamedTuple):
    """A call of `tf.gradients`, or of an optimizer's `compute_gradients`, in a model_fn.

    Attributes:
      losses: what was differentiated: a tensor, or a list of tensors that count together.
      grad_losses: their gradients, or None for ones.
      gradients: what the call returned, each as its tensors.
    """

    losses: Any
    grad_losses: Any
    gradients: list[tf.Tensor]

    @property
    def key(self) -> list[int]:
        """Equal for two calls with the same losses."""
        return list(map(id, tf.nest.flatten([self.losses, self.grad_losses])))


class Captured(NamedTuple):
    """A call of `apply_gradients` in a model_fn.

    Attributes:
      optimizer: the user's.
      pairs: (gradient or None, variable), as the user passed them: clipped, for example.
      counter: the variable that the call would increment, or None.
      before: a no-op after all operations that the update waits for.
      after: the no-op that the call returned.
      variable_scope, name_scope: where the call was made; they are part of the names of slots.
      is_sync: whether the user has wrapped the optimizer in a SyncReplicasOptimizer.
      averages: (moving average, its variables or None) of that SyncReplicasOptimizer, or None.
      options: further arguments of the call, which only the user's own classes have.
      differentiated: the calls that have computed the gradients.
    """

    optimizer: tf.train.Optimizer
    pairs: list[tuple[Any, tf.Variable]]
    counter: Any
    before: tf.Operation
    after: tf.Operation
    variable_scope: tf.VariableScope
    name_scope: str
    is_sync: bool
    averages: tuple[Any, Any] | None
    options: Mapping[str, Any]
    differentiated: list[Differentiated]

    @contextlib.contextmanager
    def scopes(self) -> Iterator[None]:
        """Enters the scopes of the call, which are in the names of slots."""
        with (
            tf.variable_scope(self.variable_scope, auxiliary_name_scope=False),
            tf.name_scope(f"{self.name_scope}/" if self.name_scope else None),
        ):
            yield

    def apply(self) -> None:
        """Applies the gradients where the model did: what runs `after` updates the variables."""
        with self.scopes(), tf.control_dependencies(None), tf.control_dependencies([self.before]):
            applied = self.optimizer.apply_gradients(self.pairs, self.counter, **self.options)
        transfer.add_control_input(self.after, applied.op if tf.is_tensor(applied) else applied)


@contextlib.contextmanager
def recording() -> Iterator[list[Captured]]:
    """Yields a list, to which the calls of `apply_gradients` of optimizers created in the body are added."""
    _patch_once()
    recorder = _Recorder()
    _recorders.current = recorder
    try:
        yield recorder.captured
    finally:
        _recorders.current = None
        recorder.release()


class _Recorder:
    """Shadows `apply_gradients` of each optimizer, of any class, and notes which losses are differentiated."""

    def __init__(self) -> None:
        self.captured: list[Captured] = []
        self._shadowed: list[tf.train.Optimizer] = []
        self._differentiated: list[Differentiated] = []
        self._is_differentiating = False
        self._place = _place()

    def shadow(self, optimizer: tf.train.Optimizer) -> None:
        self._shadowed.append(optimizer)
        optimizer.apply_gradients = functools.partial(self._apply, optimizer)
        optimizer.compute_gradients = functools.partial(self._compute, optimizer)

    def release(self) -> None:
        for optimizer in self._shadowed:
            optimizer.__dict__.pop("apply_gradients", None)
            optimizer.__dict__.pop("compute_gradients", None)

    def _compute(
        self, optimizer: tf.train.Optimizer, loss: Any, var_list: Any = None, *args: Any, **options: Any
    ) -> Any:
        if var_list is not None:
            var_list = _whole_or_parts(var_list)
        given = () if var_list is None and not args else (var_list, *args)  # an optimizer of the user may take none
        compute = functools.partial(type(optimizer).compute_gradients, optimizer, loss, *given, **options)
        return self.differentiate(loss, options.get("grad_loss"), compute)

    def differentiate(self, losses: Any, grad_losses: Any, compute: Callable[[], Any]) -> Any:
        """Returns `compute()`, and notes it unless it is within another: a wrapper may scale the loss, and undo it."""
        if self._is_differentiating or _place() != self._place:
            return compute()
        self._is_differentiating = True
        try:
            made = compute()
        finally:
            self._is_differentiating = False
        gradients = [part for one in made for part in transfer.tensors_of(one[0] if isinstance(one, tuple) else one)]
        if not callable(losses):
            self._differentiated.append(Differentiated(losses, grad_losses, gradients))
        return made

    def _apply(
        self, optimizer: tf.train.Optimizer, grads_and_vars: Sequence[tuple], global_step: Any = None,
        name: str | None = None, **options: Any,
    ) -> Any:
        # A call in a branch, a loop or a function need not happen in each step.
        if _place() != self._place:
            return type(optimizer).apply_gradients(optimizer, grads_and_vars, global_step, name, **options)
        pairs = list(grads_and_vars)
        captured = _capture(optimizer, pairs, global_step, name, options)._replace(
            differentiated=_differentiated_for(pairs, self._differentiated))
        self.captured.append(captured)
        return captured.after


def _whole_or_parts(variables: Any) -> list[Any]:
    """Returns variables, the parts of each that --partition_bytes has cut, which TensorFlow's optimizers need."""
    return [part for one in tf.nest.flatten(variables)
            for part in (one if isinstance(one, PartitionedVariable) else [one])]


def _capture(
    optimizer: Any, pairs: list[tuple], counter: Any, name: str | None, options: Mapping[str, Any]
) -> Captured:
    averages, is_sync = None, False
    while type(optimizer).__name__ == _WRAPPER:
        is_sync = True
        if optimizer._variable_averages is not None:  # noqa: SLF001 (no public name)
            averages = (optimizer._variable_averages, optimizer._variables_to_average)  # noqa: SLF001
        optimizer = optimizer._opt  # noqa: SLF001
    name_scope = tf.get_default_graph().get_name_scope()
    before = tf.no_op("before_update")
    # Without inputs: operations after an update need no mini-batch. In the loop of local steps nothing runs after an
    # update; there, an operation outside of the loop could not be distinguished from one of another model.
    with contextlib.nullcontext() if _control_flow_context() else tf.control_dependencies(None):
        after = tf.no_op(name or "own_update")
    return Captured(optimizer, pairs, counter, before, after, tf.get_variable_scope(), name_scope, is_sync, averages,
                    options, [])


def _differentiated_for(pairs: list[tuple], noted: Sequence[Differentiated]) -> list[Differentiated]:
    """Returns the calls that have computed these gradients, without those of a loss with gradients, as a penalty."""
    needed = set(transfer.upstream([part for gradient, _ in pairs for part in transfer.tensors_of(gradient)]))
    used = [one for one in noted if needed.intersection(part.op for part in one.gradients)]
    within = set(transfer.upstream([loss for one in used for loss in tf.nest.flatten(one.losses)]))
    return [one for one in used if not within.intersection(part.op for part in one.gradients)]


def _place() -> tuple[tf.Graph, Any]:
    """Returns the graph, which may be of a function, and the branch or the loop that is being built, or None."""
    return tf.get_default_graph(), _control_flow_context()


def _control_flow_context() -> Any:
    return tf.get_default_graph()._get_control_flow_context()  # noqa: SLF001 (no public name)


def _patch_once() -> None:
    """Patches the optimizer's __init__ and `tf.gradients` to ask for the recorder, if their thread has one."""
    with _patching:
        initialise = tf.train.Optimizer.__init__
        if getattr(initialise, "asks_for_recorder", False):
            return

        @functools.wraps(initialise)
        def initialise_and_ask(self: tf.train.Optimizer, *args: Any, **kwargs: Any) -> None:
            initialise(self, *args, **kwargs)
            recorder = getattr(_recorders, "current", None)
            if recorder is not None:
                recorder.shadow(self)

        differentiate = gradients_util._GradientsHelper  # noqa: SLF001 (of tf.gradients, which has several names)

        @functools.wraps(differentiate)
        def differentiate_and_note(ys: Any, xs: Any, grad_ys: Any = None, *args: Any, **kwargs: Any) -> Any:
            compute = functools.partial(differentiate, ys, xs, grad_ys, *args, **kwargs)
            recorder = getattr(_recorders, "current", None)
            return recorder.differentiate(ys, grad_ys, compute) if recorder is not None else compute()

        gradients_util._GradientsHelper = differentiate_and_note  # noqa: SLF001
        initialise_and_ask.asks_for_recorder = True
        tf.train.Optimizer.__init__ = initialise_and_ask
