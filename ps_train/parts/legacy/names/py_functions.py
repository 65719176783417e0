"""Functions of `tf.py_func`: what they return has the type that the script says, if it is a number of the same kind.

Since NumPy 2 an operation with a `np.float64` makes float64 of an array of float32, as in `(image - mean) / std`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Callable

import numpy as np
import tensorflow.compat.v1 as tf


def cast_results(original: Callable, func: Any, inp: Any, Tout: Any, *args: Any,  # noqa: N803 (TensorFlow's own name)
                 **kwargs: Any) -> Any:
    """Adds the operation of a `tf.py_func`; one of `tf.py_function` stays as it is."""
    is_eager = kwargs.get("use_eager_py_func") or len(args) > 1 and args[1]  # after `stateful`
    if is_eager or not callable(func):
        return original(func, inp, Tout, *args, **kwargs)
    types = [tf.as_dtype(each).as_numpy_dtype for each in (Tout if isinstance(Tout, (list, tuple)) else [Tout])]

    @functools.wraps(func, functools.WRAPPER_ASSIGNMENTS if hasattr(func, "__name__") else ())
    def call(*values: Any) -> Any:
        found = func(*values)
        return _cast(found, types) if isinstance(found, (list, tuple)) else _cast([found], types)[0]

    return original(call, inp, Tout, *args, **kwargs)


def _cast(results: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    if len(results) != len(types):  # TensorFlow says so
        return list(results)
    return [result.astype(wanted) if isinstance(result, (np.ndarray, np.generic))
            and _kind(result.dtype) and _kind(result.dtype) == _kind(np.dtype(wanted)) else result
            for result, wanted in zip(results, types)]


def _kind(dtype: np.dtype) -> str:
    """Returns "f" of floats, "i" of whole numbers, else ""."""
    return {"f": "f", "i": "i", "u": "i"}.get(dtype.kind, "")
