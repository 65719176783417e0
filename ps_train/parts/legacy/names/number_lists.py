"""Numbers in protocol buffers: protobuf 3 took booleans as whole numbers, and arrays of one number as that number."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf


def repair_messages(wrap: Callable) -> None:
    """Lets `Int64List`, `FloatList` and `Summary.Value` take what they took in TF1; `wrap` replaces a function."""
    wrap("__init__", functools.partial(_fill, number_of=_whole_number), tf.train.Int64List)
    wrap("__init__", functools.partial(_fill, number_of=_number), tf.train.FloatList)
    wrap("__init__", _fill_value, tf.Summary.Value)


def _fill(original: Callable, message: Any, *args: Any, number_of: Callable[[Any], Any],
          value: Iterable[Any] | None = None, **kwargs: Any) -> None:
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()  # protobuf 4 takes no number of an array in which one does not fit, without an error
    elif hasattr(value, "__next__") or isinstance(value, np.ndarray):
        value = [*value]  # type: ignore[misc]  # which may be read twice
    try:
        original(message, *args, value=value, **kwargs)
    except TypeError:
        if value is None:
            raise
        message.Clear()
        original(message, *args, value=[number_of(each) for each in value], **kwargs)


def _fill_value(original: Callable, message: Any, *args: Any, **kwargs: Any) -> None:
    if isinstance(kwargs.get("simple_value"), np.ndarray):
        kwargs["simple_value"] = _number(kwargs["simple_value"])
    original(message, *args, **kwargs)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.size == 1 else value


def _whole_number(value: Any) -> Any:
    number = _number(value)
    return int(number) if isinstance(number, (bool, np.bool_)) else number
