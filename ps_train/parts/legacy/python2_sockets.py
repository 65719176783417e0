"""What the sockets of Python 2 took and gave, in code of Python 2: strings, which were bytes and text at once.

    data = ""
    while len(data) < size:
        data += connection.recv(size - len(data))       bytes, which text before or behind them does not turn into text
    pickle.loads(data)
    connection.sendall("done")                          the bytes of a text

Parameter servers that such scripts have of their own exchange gradients so. A length that they send ahead as
`pickle.dumps(length, pickle.HIGHEST_PROTOCOL)` has 8 bytes, as with Python 2's highest protocol.
"""

from __future__ import annotations

import ast
import builtins
import socket
from collections.abc import Callable
from typing import Any

from ps_train.parts.legacy.encoded_text import Encoded
from ps_train.parts.legacy.python2_calls import call_node, node_at

# What the changed code uses; it is among the built-ins, where every module finds it.
_METHOD = "__ps_train_socket_method__"
_RECEIVING, _SENDING = ("recv", "recvfrom"), ("send", "sendall", "sendto")
HIGHEST_PROTOCOL = 2  # of Python 2's pickle


class Received(Encoded):
    """Bytes that came through a socket. With text, `+` makes such bytes of both."""

    def __add__(self, other: Any) -> Any:
        return received(bytes(self) + _as_bytes(other))

    def __radd__(self, other: Any) -> Any:
        return received(_as_bytes(other) + bytes(self))


def received(value: bytes) -> Received:
    """Returns bytes that equal their text: that of UTF-8, or a character for each byte."""
    made = Received(value)
    try:
        made.text, made.encoding = value.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        made.text, made.encoding = value.decode("latin-1"), "latin-1"
    return made


def _as_bytes(value: Any) -> Any:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def change_sockets(tree: ast.Module) -> ast.Module:
    """Changes the calls of sockets' methods, and the highest protocol of pickle."""
    return _Changes().visit(tree)


class _Changes(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr in (*_RECEIVING, *_SENDING):
            name = node_at(ast.Constant(node.func.attr), node.func)
            node.func = call_node(_METHOD, node.func, node.func.value, name)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_protocol = node.attr == "HIGHEST_PROTOCOL" and isinstance(node.ctx, ast.Load)
        return node_at(ast.Constant(HIGHEST_PROTOCOL), node) if is_protocol else node


def install_sockets() -> None:
    """Makes what the changed code uses available."""
    setattr(builtins, _METHOD, method_of)


def method_of(owner: Any, name: str) -> Callable[..., Any]:
    """Returns a method of an object; that of a socket takes text, and gives `Received`."""
    method = getattr(owner, name)
    if not isinstance(owner, socket.socket):
        return method
    if name in _SENDING:
        return lambda data, *args: method(_as_bytes(data), *args)
    if name == "recv":
        return lambda *args: received(method(*args))
    return lambda *args: (lambda data, address: (received(data), address))(*method(*args))
