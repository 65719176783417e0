"""What `text.encode("utf-8")` returns in code of Python 2: bytes that are also the text of that code's own strings.

    vocabulary = dict((word.encode("utf-8"), index) for word, index in json.load(file).items())
    line.split()[0] in vocabulary       True, as the strings of Python 2 are bytes

In Python 3 nothing of a text equals bytes, so that each word would be an unknown one.
"""

from __future__ import annotations

import ast
import builtins
import codecs
import operator
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ps_train.parts.legacy.python2_calls import call_node

# What the changed code uses; it is among the built-ins, where every module finds it.
_ENCODER = "__ps_train_encoder__"
_METHODS = ("split", "rsplit", "strip", "lstrip", "rstrip", "replace", "startswith", "endswith", "find", "rfind",
            "index", "count", "partition", "join", "lower", "upper", "title", "splitlines", "rindex", "rpartition",
            "capitalize", "swapcase", "expandtabs", "center", "ljust", "rjust", "zfill")
# Encodings whose bytes say nothing but the text; others escape it, or begin with a mark.
_PLAIN = ("utf-8", "ascii", "iso8859-1")
# Code in these places was written for Python 3, where a byte is a number.
_LIBRARIES = (*(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")), "<frozen ")


class Encoded(np.bytes_):  # of another class of bytes, numpy and TensorFlow would take the text: "12" for 12
    """Bytes that equal their text, go into it by `+` and `%s`, and have its order and its methods.

    The methods are those of bytes if an argument is bytes. What they return is encoded again. An element is text, as in
    Python 2; for a library it is a number.
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

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return self._piece(bytes.__getitem__(self, place))
        byte = bytes.__getitem__(self, place)
        return byte if _is_library(sys._getframe(1)) else self._piece(bytes([byte]))  # noqa: SLF001 (see below)

    def __iter__(self) -> Iterator:
        values = bytes(self)
        if _is_library(sys._getframe(1)):  # noqa: SLF001 (no other way to know the caller)
            return iter(values)
        return (self._piece(bytes([byte])) for byte in values)

    def _piece(self, value: bytes) -> bytes:
        """Returns a part of encoded text as such, or as plain bytes if it has only a part of a letter."""
        try:
            return _encoded(value.decode(self.encoding), self.encoding, "strict")
        except UnicodeDecodeError:
            return value

    def __contains__(self, part: Any) -> bool:
        return part in self.text if isinstance(part, str) else bytes.__contains__(self, part)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Returns the bytes: TensorFlow calls it for lists in which there is text, too."""
        del encoding, errors
        return bytes(self)

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


def _is_library(caller: types.FrameType) -> bool:
    return caller.f_code.co_filename.startswith(_LIBRARIES)


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Encoded, Any], Any]:
    def with_other(self: Encoded, other: Any) -> Any:
        if isinstance(other, (str, Encoded)):
            return compare(self.text, _text(other))
        return compare(bytes(self), other)
    return with_other


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
for _name in ("lt", "le", "gt", "ge"):
    setattr(Encoded, f"__{_name}__", _comparison(getattr(operator, _name)))


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
