"""Modules of Python 2's library that scripts may import, and files as its `pickle` and `csv` took them.

    import cPickle           --> import _python2_of_ps_train_cPickle as cPickle     leftovers.py, which changes the code
    its finder, of the last resort --> a module beside the script, the module of Python 3, or one of those below

So `try: import cPickle` with an `except ImportError` ends as it does in Python 3, and nothing else finds these modules.
"""

from __future__ import annotations

import ast
import codecs
import csv
import functools
import importlib
import importlib.abc
import importlib.machinery
import io
import pickle
import re
import sys
import types
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from ps_train.parts.legacy.encoded_text import Encoded
from ps_train.parts.legacy.python2_calls import fitting

PREFIX = "_python2_of_ps_train_"
_HIGHEST_PROTOCOL = 2  # of Python 2's pickle

# Modules of Python 2 -> those of Python 3 with the same names.
MODULES = {
    "cPickle": "pickle", "Queue": "queue", "ConfigParser": "configparser", "StringIO": "io", "cStringIO": "io",
    "urllib2": "urllib.request", "urlparse": "urllib.parse", "httplib": "http.client", "HTMLParser": "html.parser",
    "BaseHTTPServer": "http.server", "SimpleHTTPServer": "http.server", "SocketServer": "socketserver",
    "xmlrpclib": "xmlrpc.client", "commands": "subprocess", "thread": "_thread", "copy_reg": "copyreg",
    "__builtin__": "builtins", "cookielib": "http.cookiejar", "anydbm": "dbm", "Tkinter": "tkinter",
}


def change_import(node: ast.Import | ast.ImportFrom, names: Container[str]) -> bool:
    """Lets a statement import modules of these names from here, and returns whether it changes."""
    if isinstance(node, ast.ImportFrom):
        is_changed = node.module in names and not node.level
        node.module = f"{PREFIX}{node.module}" if is_changed else node.module
        return is_changed
    found = [alias for alias in node.names if alias.name in names]
    for alias in found:
        alias.name, alias.asname = PREFIX + alias.name, alias.asname or alias.name
    return bool(found)


class LibraryFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of Python 2 by the names that changed code imports them by."""

    def find_spec(self, fullname, path=None, target=None):
        """Returns a spec, or None for a module of another name."""
        return importlib.machinery.ModuleSpec(fullname, self) if fullname.startswith(PREFIX) else None

    def create_module(self, spec):
        """Leaves it to Python to make a module, which `exec_module` exchanges."""
        return None

    def exec_module(self, module):
        """Puts a module of that name beside the script, or what takes its place today, instead of the new one."""
        name = module.__name__.removeprefix(PREFIX)
        is_there = name in sys.modules or importlib.machinery.PathFinder.find_spec(name) is not None
        sys.modules[module.__name__] = importlib.import_module(name) if is_there else _module_of_today(name)


def _module_of_today(name: str) -> types.ModuleType:
    today = importlib.import_module(MODULES[name])
    changed = {"cPickle": {"load": _of_bytes(pickle.load), "loads": _of_bytes(pickle.loads),
                           "dump": _of_bytes(pickle.dump), "dumps": dumps},
               "StringIO": {"StringIO": TextOrBytes}, "cStringIO": {"StringIO": TextOrBytes}}.get(name)
    if changed is None:
        return today
    module = types.ModuleType(name, today.__doc__)
    module.__dict__.update({key: value for key, value in vars(today).items() if not key.startswith("__")}, **changed)
    return module


def dumps(obj: Any, protocol: int | None = None, **options: Any) -> bytes:
    """`pickle.dumps`, whose highest protocol is that of Python 2: code may send a pickle whose length it knows."""
    is_highest = protocol is not None and (protocol < 0 or protocol == pickle.HIGHEST_PROTOCOL)
    return pickle.dumps(obj, _HIGHEST_PROTOCOL if is_highest else protocol, **options)


class TextOrBytes:
    """`StringIO.StringIO`: a file in memory, of text or of bytes as its first value is; of text while it has none.

    Later values become what the first one was, as `python2_calls` does it for other files.
    """

    def __init__(self, buf: Any = "") -> None:
        self._file: Any = None
        if buf:
            self._file = _memory_of(buf)(str(buf) if type(buf) is Encoded else buf)

    def write(self, s: Any) -> None:
        """Adds text, or bytes."""
        if self._file is None:
            self._file = _memory_of(s)()
        self._file.write(fitting(self._file, s))

    def writelines(self, lines: Iterable[Any]) -> None:
        """Adds each of them."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        # An empty file does not become one of text by being asked, as Pillow does before it writes.
        return getattr(io.StringIO() if self._file is None else self._file, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file or ())

    def __next__(self) -> Any:
        return next(self._file or iter(()))

    def __enter__(self) -> TextOrBytes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _memory_of(value: Any) -> type:
    return io.StringIO if isinstance(value, str) or type(value) is Encoded else io.BytesIO


def read_files_of_python2() -> None:
    """Lets `pickle` and `csv` take files of either mode, and pickles of Python 2, for this whole process.

    Text of Python 2, such as that of CIFAR-10's pickles, is read as Latin-1: one character for each byte.
    """
    for name in ("load", "loads", "dump"):
        setattr(pickle, name, _of_bytes(getattr(pickle, name)))
    csv.reader, csv.writer = _reader_of(csv.reader), _writer_of(csv.writer)


def _of_bytes(function: Callable[..., Any]) -> Callable[..., Any]:
    options = {} if function.__name__ == "dump" else {"encoding": "latin1"}

    @functools.wraps(function)
    def call(*args: Any, **given: Any) -> Any:
        return function(*map(_as_binary, args), **{**options, **given})
    return call


def _as_binary(value: Any) -> Any:
    if isinstance(value, io.TextIOWrapper):
        return value.buffer
    if "_binary_mode" in getattr(value, "__dict__", ()):  # a file of tf.gfile, which then gives and takes bytes
        value._binary_mode = True  # noqa: SLF001 (its mode cannot be changed)
    return value


def _reader_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def reader(csvfile: Any, *args: Any, **given: Any) -> Any:
        return original(_decoded(iter(csvfile)) if _is_binary(csvfile) else csvfile, *args, **given)
    return reader


def _decoded(lines: Iterator[Any]) -> Iterator[str]:
    """Returns lines of text; also those that only "\\r" ends."""
    for line in lines:
        text = line.decode() if isinstance(line, bytes) else line
        yield from filter(None, re.split("(?<=\r)(?!\n)", text))


def _writer_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def writer(csvfile: Any, *args: Any, **given: Any) -> Any:
        return original(_Encoding(csvfile) if _is_binary(csvfile) else csvfile, *args, **given)
    return writer


class _Encoding:
    """Writes text into a file of bytes, which stays open when this is gone."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> Any:
        return self._file.write(text.encode())


def _is_binary(file: Any) -> bool:
    file = file._file if isinstance(file, TextOrBytes) else file  # noqa: SLF001 (of this module)
    if isinstance(file, (io.TextIOBase, codecs.StreamReaderWriter)):  # the mode of the latter is that of its file
        return False
    mode = getattr(file, "mode", None)
    return isinstance(file, (io.BufferedIOBase, io.RawIOBase)) or (isinstance(mode, str) and "b" in mode)
