"""What functions of Python 2's library took and gave, in code of Python 2: strings, which were bytes and text at once.

    data = ""
    while len(data) < size:
        data += connection.recv(size - len(data))       bytes, which text before or behind them does not turn into text
    "".join(chunks)                                     the same, of a list of such bytes
    pickle.loads(data)
    connection.sendall("done")                          the bytes of a text
    subprocess.check_output(["git", "log"]).split("\\n")
    header = "DATA" + struct.pack("<I", len(data))
    [line.strip("\\n").split("|") for line in gzip.open(path)]   text, if the bytes of the file are text
    line.split()[0] in vocabulary                    of such a line: bytes that equal their text
    file.write(bytes(text))

Parameter servers that such scripts have of their own exchange gradients so. A length that they send ahead as
`pickle.dumps(length, pickle.HIGHEST_PROTOCOL)` has 8 bytes, as with Python 2's highest protocol. A file, which
`pickle.dump` writes, has today's.
"""

from __future__ import annotations

import ast
import builtins
import functools
import numbers
import pickle
import socket
import struct
import types
from collections.abc import Callable, Iterable
from typing import Any

from ps_train.parts.legacy import python2_library
from ps_train.parts.legacy.encoded_text import Encoded, encoder_of
from ps_train.parts.legacy.python2_calls import call_node, node_at

# What the changed code uses; it is among the built-ins, where every module finds it.
_METHOD, _GIVEN, _DUMPS = "__ps_train_bytes_method__", "__ps_train_given_bytes__", "__ps_train_dumps__"
_MADE = "__ps_train_made_bytes__"
_RECEIVING, _SENDING = ("recv", "recvfrom"), ("send", "sendall", "sendto")
# Functions and methods that give bytes, and modules whose functions take bytes. A file's `read` is not among them:
# the words of a large one would each be such bytes, whose methods take their time.
_GIVING = ("check_output", "communicate", "pack", "unpack", "b64encode", "b64decode", "hexlify", "unhexlify",
           "compress", "decompress", "digest", "urandom")
_OF_BYTES = ("struct", "base64", "zlib", "binascii")
# Methods of bytes that refuse text: those of a line that was read from a file of bytes.
_OF_LINES = ("split", "rsplit", "strip", "lstrip", "rstrip", "replace", "startswith", "endswith", "partition",
             "rpartition", "find", "rfind", "index", "rindex", "count")
_WITHOUT_ARGUMENT = ("split", "rsplit", "strip", "lstrip", "rstrip")  # what they return without a text equals text, too


class Received(Encoded):
    """Bytes that equal their text: that of UTF-8, or a character for each byte. `+` makes such bytes of text, too.

    They are decoded when their text is asked for: much that arrives is added up first, and no text.
    """

    @functools.cached_property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the text: "utf-8" or "latin-1"."""
        try:
            self.decode("utf-8")
        except UnicodeDecodeError:
            return "latin-1"
        return "utf-8"

    @functools.cached_property
    def text(self) -> str:  # type: ignore[override]
        """What the bytes equal."""
        return self.decode(self.encoding)

    def __add__(self, other: Any) -> Any:
        return Received(bytes.__add__(self, taken(other)))

    def __radd__(self, other: Any) -> Any:
        return Received(bytes.__add__(taken(other), self))

    def _piece(self, value: bytes) -> bytes:
        return Received(value)


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def given(value: Any) -> Any:
    """Returns what a function has given, with its bytes as `Received`."""
    if type(value) is tuple and bytes in {*map(type, value)}:  # most that is unpacked are numbers
        return tuple(map(given, value))
    return Received(value) if type(value) is bytes else value


def taken(value: Any) -> Any:
    """Returns what a function takes: the bytes of a text, which are its characters if they can be."""
    try:
        return value.encode("latin-1") if isinstance(value, str) else value
    except UnicodeEncodeError:
        return _as_bytes(value)


def change_bytes(tree: ast.Module) -> ast.Module:
    """Changes the calls of such functions."""
    return _Changes().visit(tree)


class _Changes(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        name, owner = getattr(node.func, "attr", getattr(node.func, "id", "")), getattr(node.func, "value", None)
        is_of_bytes = isinstance(owner, ast.Name) and owner.id in _OF_BYTES
        is_of_line = name in (_OF_LINES if node.args else _WITHOUT_ARGUMENT)
        if owner is not None and (is_of_bytes or is_of_line or name in (*_RECEIVING, *_SENDING, "join")):
            node.func = call_node(_METHOD, node.func, owner, node_at(ast.Constant(name), node.func))
        if owner is None and name == "bytes":
            node.func = call_node(_MADE, node.func, node.func)
        if name == "dumps":
            node.func = call_node(_DUMPS, node.func, node.func)
        return call_node(_GIVEN, node, node) if name in _GIVING else node


def install_bytes() -> None:
    """Makes what the changed code uses available."""
    for name, function in ((_METHOD, method_of), (_GIVEN, given), (_DUMPS, dumps_of), (_MADE, made_of)):
        setattr(builtins, name, function)


def method_of(owner: Any, name: str) -> Callable[..., Any]:
    """Returns a method of an object: of a socket, it takes text, and gives `Received`; of a module, it takes text.

    The `join` of text takes bytes that equal their text. A method of bytes that takes text gives text. Any other
    method, and a function of a module such as `tf.strings.split`, stays.
    """
    original = getattr(owner, name)
    if isinstance(owner, str):
        return functools.partial(_joined, owner, original) if name == "join" else original
    if isinstance(owner, types.ModuleType) and owner.__name__ in _OF_BYTES:  # no variable that is called so
        return functools.partial(_with_text, original)
    if type(owner) is bytes and name in _OF_LINES:
        return functools.partial(_of_line, owner, name, original)
    if not isinstance(owner, socket.socket):
        return original
    if name in _SENDING:
        return lambda data, *args: original(_as_bytes(data), *args)
    return lambda *args: given(original(*args))


def made_of(kind: Any) -> Any:
    """Returns what stands for `bytes`: what makes bytes of text and numbers, too; a script's own `bytes` stays."""
    return functools.partial(_made, kind) if kind is bytes else kind


def _made(original: Callable[..., bytes], *args: Any, **options: Any) -> Any:
    """Returns bytes that equal a text or the text of a number, as `str` of Python 2; with an encoding, today's bytes.

    A text becomes UTF-8, as in files and sockets.
    """
    if len(args) != 1 or options or not isinstance(args[0], (str, numbers.Number)):
        return original(*args, **options)
    return encoder_of(str(args[0]))()


def _of_line(line: bytes, name: str, original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a method of bytes. If it is given text, what it returns is text, or `Received` if the bytes are no text.

    Without a text or bytes to split by it is `Received`: the line may be anything, such as a record of bytes.
    """
    if name in _WITHOUT_ARGUMENT and not options and all(arg is None or isinstance(arg, int) for arg in args):
        return _pieces(original(*args), Received)
    if not any(isinstance(part, str) for arg in args for part in (arg if isinstance(arg, tuple) else [arg])):
        return original(*args, **options)
    is_text = Received(line).encoding == "utf-8"
    to_bytes = _as_bytes if is_text else taken
    given_bytes = [tuple(map(to_bytes, arg)) if isinstance(arg, tuple) else to_bytes(arg) for arg in args]
    return _pieces(original(*given_bytes, **options), bytes.decode if is_text else Received)


def _pieces(value: Any, kind: Callable[[bytes], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_pieces(part, kind) for part in value)
    return kind(value) if isinstance(value, bytes) else value


def dumps_of(function: Any) -> Any:
    """Returns what stands for a function `dumps`: for that of `pickle`, one with the protocols of Python 2."""
    return python2_library.dumps if function is pickle.dumps else function


def _joined(owner: str, original: Callable[..., Any], parts: Iterable[Any]) -> Any:
    """Joins text and bytes as `+` does: with `Received` among them they are such bytes."""
    parts = parts if isinstance(parts, (list, tuple, str)) else [*parts]  # which are read twice
    kinds = {*map(type, parts)}
    if Received in kinds:
        return Received(taken(owner).join(map(taken, parts)))
    return original([str(part) if isinstance(part, Encoded) else part for part in parts] if Encoded in kinds else parts)


def _with_text(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a function; once more with bytes instead of its text if it refuses that."""
    try:
        return original(*args, **options)
    except (TypeError, ValueError, struct.error):
        if not any(isinstance(value, str) for value in args):
            raise
    return original(*map(taken, args), **options)
