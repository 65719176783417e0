"""What `text.encode("utf-8")` returns in code of Python 2: bytes that are also the text of that code's own strings.

    vocabulary = dict((word.encode("utf-8"), index) for word, index in json.load(file).items())
    line.split()[0] in vocabulary       True, as the strings of Python 2 are bytes

In Python 3 nothing of a text equals bytes, so that each word would be an unknown one.
"""

from __future__ import annotations

import ast
import builtins
import codecs
from collections.abc import Callable
from typing import Any

import numpy as np

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_ENCODER = "__ps_train_encoder__"
_METHODS = ("split", "rsplit", "strip", "lstrip", "rstrip", "replace", "startswith", "endswith", "find", "rfind",
            "index", "count", "partition", "join", "lower", "upper", "title", "splitlines")
# Encodings whose bytes say nothing but the text; others escape it, or begin with a mark.
_PLAIN = ("utf-8", "ascii", "iso8859-1")


class Encoded(np.bytes_):  # of another class of bytes, numpy and TensorFlow would take the text: "12" for 12
    """Bytes that equal their text, go into it by `+` and `%s`, and have its methods, unless an argument is bytes.

    What the methods return is encoded again.
    """

    text: str
    encoding: str

    def __eq__(self, other: object) -> bool:
        return self.text == other if isinstance(other, str) else bytes.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)  # of ASCII bytes it is the same

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return repr(self.text)

    def __format__(self, form: str) -> str:
        return format(self.text, form)

    def __add__(self, other: Any) -> Any:
        return self.text + other if isinstance(other, str) else bytes.__add__(self, other)

    def __radd__(self, other: Any) -> Any:
        return other + (self.text if isinstance(other, str) else bytes(self))

    def __contains__(self, part: Any) -> bool:
        return part in self.text if isinstance(part, str) else bytes.__contains__(self, part)

    def __mul__(self, times: Any) -> bytes:
        return bytes(self) * times  # numpy's would be a product

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> bytes:
        return bytes(self) % values

    def __copy__(self) -> Encoded:
        return self

    def __deepcopy__(self, _: dict) -> Encoded:
        return self

    def __reduce__(self) -> tuple:
        return str, (self.text,)  # a file of pickle is read without ps_train


def _method(name: str) -> Callable[..., Any]:
    def call(self: Encoded, *args: Any) -> Any:
        if name == "join":
            args = (list(*args),)
        parts = [part for arg in args for part in (arg if isinstance(arg, (list, tuple)) else [arg])]
        if any(isinstance(part, bytes) and not isinstance(part, Encoded) for part in parts):
            return getattr(bytes(self), name)(*args)
        return _encoded_again(getattr(self.text, name)(*map(_text, args)), self.encoding)
    return call


def _text(value: Any) -> Any:
    """Returns the text of what is encoded, also in a list or tuple; anything else as it is."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_text, value))
    return value.text if isinstance(value, Encoded) else value


def _encoded_again(value: Any, encoding: str) -> Any:
    """Encodes what a method of text returns: text, or a list or tuple of it."""
    if isinstance(value, (list, tuple)):
        return type(value)(_encoded_again(part, encoding) for part in value)
    try:
        return _encoded(value, encoding, "strict") if isinstance(value, str) else value
    except UnicodeEncodeError:  # a letter whose capital the encoding does not have
        return value


for _name in _METHODS:
    setattr(Encoded, _name, _method(_name))


def change_encode(tree: ast.Module) -> ast.Module:
    """Changes the calls of `encode`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
            node.func = call_node(_ENCODER, node.func, node.func.value)
    return tree


def install_encoder() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _ENCODER, encoder_of)


def encoder_of(owner: Any) -> Callable[..., Any]:
    """Returns the method `encode` of an object; that of text returns `Encoded`, and bytes are encoded already."""
    if isinstance(owner, str):
        return lambda encoding="utf-8", errors="strict": _encoded(owner, encoding, errors)
    return (lambda *_: owner) if isinstance(owner, bytes) else owner.encode


def _encoded(text: str, encoding: str, errors: str) -> Any:
    if not codecs.lookup(encoding)._is_text_encoding:  # noqa: SLF001 (no public name); such as "hex"
        owner: Any = text if encoding in ("rot13", "rot_13") else text.encode("latin-1")
        value = codecs.encode(owner, encoding, errors)
        return value.decode("latin-1") if isinstance(value, bytes) else value
    value = text.encode(encoding, errors)
    if codecs.lookup(encoding).name not in _PLAIN or errors.startswith("surrogate"):
        return value
    encoded = Encoded(value)
    encoded.text, encoded.encoding = value.decode(encoding), encoding
    return encoded
