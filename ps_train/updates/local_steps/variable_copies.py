"""A worker's own copy of the model's variables, and a second build of the model that reads the copy.

    on the ps   weights (in one part or several), ...
    copy        ps_train/now/weights      what the worker's steps change
                ps_train/begin/weights    what was pulled

The copies are in none of the collections that TensorFlow initialises, checks or saves: their values come from the ps.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.graph import devices

# What a model adds to while it is built, and reads back; the second time it is built it must find them empty.
_OF_ONE_BUILD = (tf.GraphKeys.LOSSES, tf.GraphKeys.REGULARIZATION_LOSSES, tf.GraphKeys.UPDATE_OPS,
                 tf.GraphKeys.SUMMARIES)


class Whole(NamedTuple):
    """A variable as the model knows it; the ps may have it in several parts.

    Attributes:
      name: the model's, without device and part.
      parts: on the ps, the only one or along the first dimension.
    """

    name: str
    parts: list[tf.Variable]

    @property
    def shape(self) -> list[int]:
        """The shape of all parts together."""
        shapes = [part.shape.as_list() for part in self.parts]
        return [sum(shape[0] for shape in shapes), *shapes[0][1:]] if len(shapes) > 1 else shapes[0]

    def join(self, values: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the whole value of the values of the parts."""
        return tf.concat(values, 0) if len(values) > 1 else values[0]

    def cut(self, value: tf.Tensor) -> list[tf.Tensor]:
        """Returns the values of the parts of a whole value."""
        return tf.split(value, [int(part.shape[0]) for part in self.parts]) if len(self.parts) > 1 else [value]


class Copy(NamedTuple):
    """A worker's own copy of a variable.

    Attributes:
      of: the variable on the ps.
      now: after the steps taken so far.
      begin: when the round began.
    """

    of: Whole
    now: tf.Variable
    begin: tf.Variable


def wholes(variables: Sequence[tf.Variable]) -> list[Whole]:
    """Returns the variables as the model knows them, the parts of one together."""
    found: dict[str, Whole] = {}
    for variable in variables:
        part = variable._get_save_slice_info()  # noqa: SLF001 (what the Saver goes by; there is no public name)
        name = part.full_name if part else variable.op.name
        found.setdefault(name, Whole(name, [])).parts.append(variable)
    return list(found.values())


def copy(whole: Whole) -> Copy:
    """Returns a copy of a variable on this worker, without a value yet."""
    dtype = whole.parts[0].dtype.base_dtype
    return Copy(whole, own_variable(f"now/{whole.name}", whole.shape, dtype),
                 own_variable(f"begin/{whole.name}", whole.shape, dtype))


def own_variable(name: str, shape: Sequence[int], dtype: tf.DType) -> tf.Variable:
    """Returns a variable of this worker's server, in none of the collections that TensorFlow initialises or saves."""
    with on_this_worker():
        return tf.Variable(lambda: tf.zeros(shape, dtype), trainable=False, name=f"ps_train/{name}")


@contextlib.contextmanager
def on_this_worker() -> Iterator[None]:
    """Makes variables like local ones, which `placement.on_cluster` keeps on the worker, but without initialisation."""
    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        variable = next_creator(**{**kwargs, "collections": [tf.GraphKeys.LOCAL_VARIABLES]})
        tf.get_collection_ref(tf.GraphKeys.LOCAL_VARIABLES).pop()
        return variable

    with tf.variable_creator_scope(create):
        yield


@contextlib.contextmanager
def reading(copies: Sequence[Copy], values: Mapping[str, tf.Tensor]) -> Iterator[None]:
    """Gives the model the copy wherever it asks for one of its variables, while it is built again.

    Args:
      values: name -> the copy's value in this step, for the variables that are trained.
    """
    by_name = {copy.of.name: copy for copy in copies}

    def get(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        if name not in by_name:
            return getter(name, *args, **kwargs)
        copy = by_name[name]
        value = values[name] if copy.of.parts[0].trainable else copy.now
        if kwargs.get("regularizer") is not None:
            tf.add_to_collection(tf.GraphKeys.REGULARIZATION_LOSSES, kwargs["regularizer"](value))
        return value

    def create(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        if tf.GraphKeys.LOCAL_VARIABLES not in (kwargs.get("collections") or ()):
            raise UserCodeError(f"model_fn makes {kwargs.get('name') or 'a variable'} anew when it is called again; "
                                "--communication_period needs variables made by tf.compat.v1.get_variable, under the "
                                "same names each time")
        return next_creator(**kwargs)

    graph = tf.get_default_graph()
    before = {name: graph.get_collection(name) for name in _OF_ONE_BUILD}
    for name in _OF_ONE_BUILD:
        graph.clear_collection(name)
    try:
        with (
            devices.ignoring_ps(),
            tf.variable_scope(tf.get_variable_scope(), custom_getter=get, auxiliary_name_scope=False),
            tf.variable_creator_scope(create),
        ):
            yield
    finally:
        for name, values_before in before.items():
            graph.clear_collection(name)
            for value in values_before:
                graph.add_to_collection(name, value)
