"""Operations on the rows of embedding variables as calls of functions, each of which serves all variables of a kind.

    variables C1, C2, ... C26 of 16 floats --> "read", "update", "reset", ...: a function of about 100 operations each
                                               and in the graph of the script one call for each variable

A model of a click rate has 20 to 300 variables. With all operations of each in its graph, that of WDL had 33,000: it
took a process 28 s on a core to build them, and 43 s to take its first step.

A function takes the variables and hash tables of a store as inputs. It is not expanded into the graph (`_noinline`), so
neither TensorFlow's optimizer nor its partitioning sees more than the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf

from ps_train.parts.tables import hashing
from ps_train.parts.tables.hashing import Draws
from ps_train.parts.tables.index import Handle
from ps_train.parts.tables.store import Store

# What makes a function -> the function. They have no graph of their own, so all graphs of a process use the same ones.
_made: dict[tuple, Any] = {}


def call_function(
    key: tuple, body: Callable[..., Sequence[tf.Tensor]], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Adds the call of a function to the current graph, and returns its results.

    Args:
      key: says which function it is, with the types of the inputs.
      body: adds its operations; is called once for each key.
      inputs: of any size in their first dimension.
    """
    specs = [_spec_of(tensor) for tensor in inputs]
    whole_key = (*key, *((spec.dtype, str(spec.shape)) for spec in specs))
    if whole_key not in _made:
        with tf.Graph().as_default():  # in no scope of the script
            _made[whole_key] = tf.function(
                body, autograph=False, experimental_attributes={"_noinline": True}).get_concrete_function(*specs)
    function = _made[whole_key]
    results = tf.raw_ops.StatefulPartitionedCall(
        args=list(inputs), Tout=[output.dtype for output in function.outputs], f=function)
    for result, output in zip(results, function.outputs):
        result.set_shape(output.shape)
    return list(results)


def _spec_of(tensor: tf.Tensor) -> tf.TensorSpec:
    shape = tensor.shape
    return tf.TensorSpec([None, *shape[1:]] if shape.rank else shape, tensor.dtype)


class SharedStore(Store):
    """The rows of an embedding variable on one ps."""

    _make_variable = staticmethod(Handle.make)

    def __init__(self, spec: Any, **kwargs: Any) -> None:
        """Takes the arguments of `Store`."""
        super().__init__(spec, **kwargs)
        with tf.control_dependencies(None), self.on_ps():
            self._mutex = tf.raw_ops.MutexV2(shared_name=f"ps_train/{self._name}", container="")
            self._draws = [tf.constant(number, tf.int64) for number in hashing.draws_of(spec.name, spec.dim)]

    def call(
        self, kind: str, body: Callable[..., Sequence[Any]], inputs: Sequence[tf.Tensor] = (), key: tuple = ()
    ) -> list[tf.Tensor]:
        """Returns the results of a function on the ps.

        Args:
          kind: the name of the function, with `key` and the kind of the variable.
          body: called with a store and the inputs; returns the results, or the last operations.
        """
        resources = [*self.resources, self._mutex, *self._draws]

        def of_resources(*args: tf.Tensor) -> list[tf.Tensor]:
            *own, mutex, offset, factors = args[:len(resources)]
            ended = body(self.over(own, mutex, Draws(offset, factors)), *args[len(resources):])
            if not any(isinstance(result, tf.Operation) for result in ended):
                return list(ended)
            with tf.control_dependencies(ended):
                return [tf.constant(0)]

        kind_of_variable = dataclasses.replace(self.spec, name="")
        with self.on_ps():
            return call_function(
                (kind, *key, kind_of_variable, self.ps, self.num_ps), of_resources, [*resources, *inputs])

    def read(self, ids: tf.Tensor, *, with_slots: bool = False) -> tf.Tensor:
        def body(store: Store, *inputs: tf.Tensor) -> list[tf.Tensor]:
            return [store.read(*inputs, with_slots=with_slots)]

        return self.call("read", body, [ids], (with_slots,))[0]

    def update(self, ids: tf.Tensor, gradients: tf.Tensor, factor: tf.Tensor | None = None) -> tf.Operation:
        def body(store: Store, *inputs: tf.Tensor) -> list[tf.Operation]:
            return [store.update(*inputs)]

        return self.call("update", body, [ids, gradients, *([] if factor is None else [factor])])[0].op
