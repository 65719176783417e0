"""What to do about an error that shows that --tf_mode=auto has taken a script for one of the other TensorFlow.

    taken for TensorFlow 2    a name that only TensorFlow 1 has; a module, name or argument that Keras 3 has removed
    taken for TensorFlow 1    what only runs eagerly; a name that only TensorFlow 2 or Keras 3 has
"""

from __future__ import annotations

import pathlib
import re
from importlib.machinery import PathFinder
from typing import Any

import tensorflow as tf

_NO_ATTRIBUTE = re.compile(r"module '(?:tensorflow|keras|tf_keras\.api\._v[12])(?:\._?api)?(?:\.v2)?"
                           r"(?:\.compat\.v[12])?((?:\.\w+)*)' has no attribute '(\w+)'")
_KERAS = re.compile(r"Argument\(s\) not recognized|must end in `\.keras`|Unrecognized keyword arguments passed to|"
                    r"module 'keras\b.* has no attribute")
_EAGER = re.compile(r"when eager execution is enabled|only supports .* in eager mode|"
                    r"'(Symbolic)?Tensor' object has no attribute 'numpy'")
# What `keras.utils.PyDataset`, `from keras.utils import PyDataset` and `import keras.ops` say where keras is Keras 2.
_NOT_IN_KERAS_2 = re.compile(r"(?:cannot import name '(\w+)' from |[Mm]odule (?:named )?)'tf_keras(?:\.api\._v[12])?"
                             r"(?:\.keras)?((?:\.\w+)*)'(?: has no attribute '(\w+)')?")
_guess: list[int] = []  # 1 or 2; nothing if --tf_mode was given


def set_guess(version: int | None) -> None:
    """Sets what --tf_mode=auto has taken the script for, 1 or 2; None if the flag says it."""
    _guess[:] = [] if version is None else [version]


def mode_hint(error: BaseException) -> str:
    """Returns which --tf_mode to give; "" if the error does not show that the guess is wrong."""
    if _guess == [2] and (_is_of_old_keras(error) or _has_name(tf.compat.v1, error)):
        return _advice(of=2, other=1)
    if _guess == [1] and (_EAGER.search(str(error)) or _has_name(tf.compat.v2, error) or _is_in_keras_3(error)):
        return _advice(of=1, other=2)
    return ""


def _advice(*, of: int, other: int) -> str:
    return (f"this script was taken for one of TensorFlow {of}, by the names in it: if it is for TensorFlow {other}, "
            f"give --tf_mode={other} before the script [tf_mode_guessed]")


def _is_of_old_keras(error: BaseException) -> bool:
    if isinstance(error, ImportError):
        return re.match(r"keras\.|tensorflow\.(python\.)?keras\b|keras$", error.name or "") is not None
    return _KERAS.search(str(error)) is not None


def _is_in_keras_3(error: BaseException) -> bool:
    """Returns whether the installed package keras has the name that Keras 2 lacks; it is not imported."""
    found = _NOT_IN_KERAS_2.search(str(error))
    keras = PathFinder.find_spec("keras")  # not the Keras 2 that has this name in TensorFlow 1's mode
    if found is None or not isinstance(error, (AttributeError, ImportError)) or keras is None or not keras.origin:
        return False
    *above, name = ["", *found[2].split(".")[1:], *filter(None, (found[1], found[3]))]
    root = pathlib.Path(keras.origin).parent
    files = [place.joinpath(*above, "__init__.py") for place in (root, root / "api")]  # in api up to Keras 3.9
    return any(re.search(rf"\b{name}\b", file.read_text()) for file in files if name and file.is_file())


def _has_name(api: Any, error: BaseException) -> bool:
    """Returns whether the name that a module of TensorFlow lacks is in an API."""
    text = str(error).replace("'tensorboard.summary._tf.summary'", "'tensorflow.summary'")  # up to TensorFlow 2.15
    found = _NO_ATTRIBUTE.search(text)
    if found is None or not isinstance(error, AttributeError):
        return False
    value = api
    for name in (*found[1].split(".")[1:], found[2]):
        value = getattr(value, name, None)
    return value is not None or (api is tf.compat.v1 and found[2] == "contrib")
