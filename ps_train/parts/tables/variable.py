"""Tables with the argument names of DeepRec and PAI: `ps_train.get_embedding_variable`."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import UserCodeError
from ps_train.parts.tables.tables import Table, embedding_table

_INITIALIZERS = ("tf.random_uniform_initializer(-a, a), tf.zeros_initializer() or tf.constant_initializer(0); "
                 "initial_limit=a is the first of them")
# Arguments of `embedding_table`.
_OWN = ("num_rows", "optimizer", "learning_rate", "initial_limit", "expected_rows", "num_hashes")
# They say how a variable is stored. The rows of a table are on all ps, whatever they are.
_WITHOUT_EFFECT = ("caching_device", "partitioner", "use_resource", "validate_shape")
_COLLECTIONS = {tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.TRAINABLE_VARIABLES}
# Other arguments -> what may be given, and what does the same.
_ALLOWED = {
    "constraint": ((None,), "None"),
    "custom_getter": ((None,), "None"),
    "ev_option": ((None,), "None; give filter_freq, steps_to_live or capacity"),
    "init_data_source": ((None,), "None; a table begins with the rows of the checkpoint in --train_dir"),
    "l2_weight_threshold": ((None, 0, -1), "None; give steps_to_live or capacity"),
    "max_rows": ((None,), "None; it is called capacity here"),
    "min_count": ((None,), "None; it is called filter_freq here"),
    "regularizer": ((None,), "None; add a term of the rows that are looked up to the loss"),
    "steps_to_live_l2reg": ((None, 0), "None; give steps_to_live or capacity"),
    "trainable": ((None, True), "True; for rows that are not learned, use tf.stop_gradient(table.lookup(ids))"),
    "ttl_steps": ((None,), "None; it is called steps_to_live here"),
}


def get_embedding_variable(
    name: str, embedding_dim: int, capacity: Optional[int] = None, filter_freq: int = 0,
    steps_to_live: Optional[int] = None, initializer: Any = None, **options: Any,
) -> Table:
    """Returns a dynamic table, with the argument names of DeepRec's and PAI's `get_embedding_variable`.

    Args:
      embedding_dim: as `dim` of `embedding_table`.
      capacity: as `max_rows`.
      filter_freq: as `min_count`.
      steps_to_live: as `ttl_steps`; 0 keeps all.
      initializer: uniform from -a to a, which is `initial_limit=a`, or 0. Its seed has no effect: the first value of an
        id is the same in each run.
      options: further arguments of `embedding_table`, and those of DeepRec and TensorFlow: `key_dtype` (integers or
        strings), `value_dtype` (float32), `partitioner` and others that have no effect on a table.

    Raises:
      UserCodeError: a table cannot do what an argument asks for; the text says what is allowed.
    """
    def refuse(given: str, allowed: str) -> None:
        raise UserCodeError(f"get_embedding_variable {name!r}: got {given}; allowed: {allowed}")

    own = {what: options.pop(what) for what in _OWN if what in options}
    if initializer is not None:
        if "initial_limit" in own:
            refuse("initializer and initial_limit", "one of them")
        own["initial_limit"] = _limit_of(initializer)
        if own["initial_limit"] is None:
            kind = initializer if isinstance(initializer, type) else type(initializer)
            refuse(f"an initializer of type {kind.__name__}", _INITIALIZERS)
    for what, value in options.items():
        if allowed := _problem(what, value):
            refuse(f"{what}={value!r}", allowed)
    for what, value in (("filter_freq", filter_freq), ("steps_to_live", steps_to_live)):
        if value is not None and not (isinstance(value, (int, np.integer)) and value >= 0):
            refuse(f"{what}={value!r}", "whole numbers from 0")
    return embedding_table(name, embedding_dim, min_count=filter_freq or 1, ttl_steps=steps_to_live or None,
                           max_rows=capacity, **own)


def _limit_of(initializer: Any) -> float | None:
    """Returns `initial_limit` for an initializer of TensorFlow or Keras; None if a table has no such first values."""
    try:
        made = initializer() if isinstance(initializer, type) else initializer
        kind, config = type(made).__name__, made.get_config()
        if kind == "RandomUniform":
            low, high = float(config["minval"]), float(config["maxval"])
            return high if -low == high >= 0 else None
        is_zero = kind == "Zeros" or (kind == "Constant" and not np.any(config["value"]))
    except (AttributeError, KeyError, TypeError, ValueError):  # of another kind
        return None
    return 0.0 if is_zero else None


def _problem(what: str, value: Any) -> str | None:
    """Returns what is allowed for an argument, if that is not the value that was given."""
    if what in _WITHOUT_EFFECT:
        return None
    if what == "collections":
        is_allowed = value is None or set(value) <= _COLLECTIONS
        return None if is_allowed else "None; a table is no variable of TensorFlow, and in no collection"
    if what in ("key_dtype", "value_dtype"):
        return _problem_of_dtype(what, value)
    if what not in _ALLOWED:
        known = ["capacity", "filter_freq", "steps_to_live", "initializer", "key_dtype", "value_dtype", *_OWN]
        return f"the names {', '.join(known)}"
    values, allowed = _ALLOWED[what]
    return None if any(value is one or (one is not None and value == one) for one in values) else allowed


def _problem_of_dtype(what: str, value: Any) -> str | None:
    try:
        dtype = None if value is None else tf.as_dtype(value)
    except TypeError:
        dtype = tf.variant
    if what == "key_dtype":
        return None if dtype is None or dtype.is_integer or dtype == tf.string else "integers, or tf.string"
    return None if dtype in (None, tf.float32) else "tf.float32, the type of all values of tables"
