"""Text that sessions return, and that they give to functions of Python, as code of Python 2 expects it.

It splits lines and compares them with its own strings.

A string of TensorFlow is bytes in Python 3. For a converted script, one that holds nothing but text is a `Text`. One
with the control characters that separate the fields of Hive's tables, or ASCII's fields, is an `Encoded`: it may be a
message, and stays bytes, but is also that text. What operations make for other programs, such as summaries and images,
stays bytes, and so does what has other control characters.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from tensorflow.python.client.session import BaseSession  # the class of all sessions has no public name
from tensorflow.python.ops import script_ops

from ps_train.parts.legacy.encoded_text import encoder_of

# In UTF-8; the control characters of text are tab, line feed, form feed and carriage return.
_OTHER_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_OTHERS_THAN_SEPARATORS = re.compile(r"[\x00\x04-\x08\x0b\x0e-\x1b\x7f-\x9f]")
# An image or a protocol buffer may look like text by chance.
_BINARY_OPERATIONS = re.compile("Summary|Encode(Png|Jpeg|Wav|Proto)|Serialize|Compress")


class Text(str):
    """Text with what Python 2's `str` has: it can be decoded, and equals the bytes that it was."""

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Returns the same text: it is decoded already, from UTF-8; in another encoding, its bytes decoded anew."""
        return str(self.encode().decode(encoding, errors))

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or (isinstance(other, bytes) and self.encode() == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__  # for ASCII, Python gives bytes and text one hash


def text_of_bytes(value: Any) -> Any:
    """Returns a `Text` or an `Encoded` for bytes that are text, also within an array; anything else as it is."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return value
        if not _OTHER_CONTROLS.search(text):
            return Text(text)
        return value if _OTHERS_THAN_SEPARATORS.search(text) else encoder_of(text)()
    if isinstance(value, np.ndarray) and value.dtype == object:
        found = np.empty(value.shape, object)
        found.flat[:] = [text_of_bytes(item) for item in value.flat]
        return found
    return value


def let_sessions_return_text() -> None:
    """Lets each session of this process return text."""
    BaseSession._do_run = _returning_text(BaseSession._do_run)  # noqa: SLF001 (no public place sees all fetches)
    for name in ("md5", "sha1", "sha224", "sha256", "sha384", "sha512"):
        setattr(hashlib, name, _hashing_text(getattr(hashlib, name)))
    script_ops._internal_py_func = _taking_text(script_ops._internal_py_func)  # noqa: SLF001 (all functions go there)


def _hashing_text(make: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(make)
    def hashed(string: Any = b"", *args: Any, **kwargs: Any) -> Any:
        return make(string.encode() if isinstance(string, str) else string, *args, **kwargs)
    return hashed


def _taking_text(py_func: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(py_func)
    def make(func: Callable, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("use_eager_py_func") or kwargs.get("is_grad_func"):  # which take tensors
            return py_func(func, *args, **kwargs)
        return py_func(_with_text(func), *args, **kwargs)
    return make


def _with_text(func: Callable) -> Callable:
    @functools.wraps(func, updated=())  # which may be a partial, or an object
    def call(*values: Any) -> Any:
        return func(*map(text_of_bytes, values))
    return call


def _returning_text(do_run: Callable[..., list]) -> Callable[..., list]:
    @functools.wraps(do_run)
    def run(session: Any, handle: Any, target_list: Any, fetch_list: Any, *args: Any, **kwargs: Any) -> list:
        values = do_run(session, handle, target_list, fetch_list, *args, **kwargs)
        return [value if _BINARY_OPERATIONS.search(tensor.op.type) else text_of_bytes(value)
                for tensor, value in zip(fetch_list, values)]
    return run
