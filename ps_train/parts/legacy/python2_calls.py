"""What calls and statements of Python 2 meant that Python 3 can read, and refuses when it comes to them.

    print >> file, "x"                      print("x", file=file)
    print ("%d of %d") % (1, 2)             print(("%d of %d") % (1, 2))
    sorted(rows, compare)                   sorted(rows, key=functools.cmp_to_key(compare)); so rows.sort(compare)
    "text".decode("utf-8")                  "text"; so unicode("text", "utf-8")
    "a, b".translate(None, ",")             "a b"
    file.write(text)                        the text's bytes if the file is one of bytes, and the reverse
    except Error as e: print(e.message)     the only argument of the error
    class Reader: def next(self): ...       __next__, and the like

Each of these is an error in Python 3, so what is right there keeps its meaning.
"""

from __future__ import annotations

import ast
import codecs
import functools
import io
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

# What the changed code uses; it is among the built-ins, where every module finds it.
_SORTED, _ERROR, _ORDERED = "__ps_train_sorted__", "__ps_train_error__", "__ps_train_ordered__"
_UNICODE = "__ps_train_unicode__"
# A special method of Python 2 -> how that of Python 3 is written, if a class has only the first.
SPECIAL = {"next": ("__next__", "next"), "__nonzero__": ("__bool__", "__nonzero__"),
            "__div__": ("__truediv__", "__div__")}
_UNTYPED = {"string_escape": "unicode_escape", "string-escape": "unicode_escape"}


def execfile(path: str, globals: dict | None = None, locals: dict | None = None) -> None:  # noqa: A002 (Python's names)
    """Runs a file in the names of the caller, or in others."""
    names = sys._getframe(1).f_globals if globals is None else globals  # noqa: SLF001 (the only way)
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), names, names if locals is None else locals)


def file(name: str, mode: str = "r", *arguments: Any) -> Any:
    """`open`, which reads all kinds of line ends without the mode "U"."""
    return open(name, mode.replace("U", "") or "r", *arguments)


NAMES: dict[str, Any] = {
    "StandardError": Exception, "file": file, "intern": sys.intern, "execfile": execfile, "buffer": memoryview,
    "apply": lambda function, args=(), kwargs=None: function(*args, **(kwargs or {})),
}


def decoded(text: str, encoding: str = "ascii", errors: str = "strict") -> str:
    """Returns a text, which has no bytes to decode; what an encoding such as "hex" makes of its characters."""
    encoding = _UNTYPED.get(encoding, encoding)
    if encoding == "unicode_escape":
        return text.encode("latin-1", "backslashreplace").decode(encoding, errors)
    if codecs.lookup(encoding)._is_text_encoding:  # noqa: SLF001 (no public name)
        return text
    value = codecs.decode(text.encode("latin-1"), encoding, errors)
    return value.decode("latin-1") if isinstance(value, bytes) else value


def unicode_of(object: Any = "", *args: str, **options: str) -> str:  # noqa: A002 (Python's name)
    """`unicode`, of what may be text already; bytes without an encoding are of UTF-8.

    Raises:
      TypeError: an encoding is given for what is neither text nor bytes, such as None.
    """
    if isinstance(object, str):
        return decoded(object, *args, **options)
    if isinstance(object, (bytes, bytearray, memoryview)) and not args and not options:
        return str(object, "utf-8")
    return str(object, *args, **options)


def fitting(owner: Any, value: Any) -> Any:
    """Returns what a file takes: bytes or text."""
    if isinstance(owner, io.TextIOBase):
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _writer(owner: Any) -> Callable[[Any], Any]:
    return lambda value: owner.write(fitting(owner, value))


def _lines_writer(owner: Any) -> Callable[[Iterable[Any]], Any]:
    return lambda lines: owner.writelines(fitting(owner, line) for line in lines)


def _translator(owner: str) -> Callable[..., str]:
    def translate(table: Any, deleted: str = "") -> str:
        kept = "".join(character for character in owner if character not in deleted)
        return kept if table is None else kept.translate(table)
    return translate


def _sorter(owner: list) -> Callable[..., None]:
    def sort(cmp: Any = None, key: Any = None, reverse: bool = False) -> None:
        owner.sort(key=_key_of(cmp, key), reverse=reverse)
    return sort


def sorted_by(iterable: Iterable, cmp: Any = None, key: Any = None, reverse: bool = False) -> list:
    """`sorted`, with a function that compares two values."""
    return sorted(iterable, key=_key_of(cmp, key), reverse=reverse)


def _key_of(compare: Callable[[Any, Any], int] | None, key: Callable[[Any], Any] | None) -> Any:
    if compare is None:
        return key
    key_of = functools.cmp_to_key(compare)
    return key_of if key is None else lambda value: key_of(key(value))


# Method -> the type whose own method refuses what that of Python 2 took, and what takes it.
METHODS: dict[str, tuple[type, Callable[[Any], Callable[..., Any]]]] = {
    "write": (io.IOBase, _writer), "writelines": (io.IOBase, _lines_writer), "sort": (list, _sorter),
    "translate": (str, _translator)}


def error_of_python2(error: Any) -> Any:
    """Returns what has the `message` of an error: the error, or its only argument in the place of it."""
    if hasattr(error, "message"):
        return error
    return types.SimpleNamespace(message=error.args[0] if len(error.args) == 1 else "")


def ordered(kind: type) -> type:
    """Gives a class with `__cmp__` the comparisons that it lacks; it stays hashable, as this comes after its body."""
    def by_cmp(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
        return lambda self, other: compare(self.__cmp__(other), 0)

    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        if f"__{name}__" not in vars(kind):
            setattr(kind, f"__{name}__", by_cmp(getattr(operator, name)))
    return kind


BUILTINS = {_SORTED: sorted_by, _ERROR: error_of_python2, _ORDERED: ordered, _UNICODE: unicode_of}


def may_change(node: ast.Call) -> bool:
    """Returns whether a call of one of METHODS may be one that Python 3 refuses."""
    if node.func.attr == "sort":  # type: ignore[attr-defined]
        return bool(node.args) or _has_comparison(node)
    if node.func.attr == "translate":  # type: ignore[attr-defined]
        return len(node.args) == 2 or any(isinstance(part, ast.Constant) and part.value is None for part in node.args)
    return len(node.args) == 1 and not node.keywords


def _has_comparison(node: ast.Call) -> bool:
    return any(keyword.arg == "cmp" for keyword in node.keywords)


def change_sorted(node: ast.Call) -> bool:
    """Changes a call of the built-in `sorted` that has a function to compare by."""
    is_old = len(node.args) > 1 or _has_comparison(node)
    if is_old:
        node.func = node_at(ast.Name(_SORTED, ast.Load()), node.func)
    return is_old


def change_unicode(node: ast.Call) -> bool:
    """Changes a call of the built-in `unicode`; one of `str`, which fissix makes of it, if it has an encoding."""
    is_old = node.func.id == "unicode" or len(node.args) > 1 or any(  # type: ignore[attr-defined]
        keyword.arg in ("encoding", "errors") for keyword in node.keywords)
    if is_old:
        node.func = node_at(ast.Name(_UNICODE, ast.Load()), node.func)
    return is_old


def change_open_modes(tree: ast.Module) -> ast.Module:
    """Leaves the "U" out of open(path, "rU"): Python 3 reads all kinds of line ends in any case, and refuses it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            for mode in [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "mode")]:
                if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
                    mode.value = mode.value.replace("U", "") or "r"
    return tree


def change_message(node: ast.Attribute) -> None:
    """Changes `error.message`."""
    node.value = call_node(_ERROR, node.value, node.value)


def change_class(node: ast.ClassDef) -> bool:
    """Gives a class the special methods of Python 3 that stand for those it has of Python 2."""
    names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)} | {
        target.id for part in node.body if isinstance(part, ast.Assign) for target in part.targets
        if isinstance(target, ast.Name)}
    if "__iter__" not in names:
        names.discard("next")  # of something else than an iterator
    missing = [SPECIAL[old] for old in sorted(names & SPECIAL.keys()) if SPECIAL[old][0] not in names]
    for name, text in missing:
        value = ast.parse(text, mode="eval").body
        for part in ast.walk(value):
            node_at(part, node)
        node.body.append(node_at(ast.Assign([node_at(ast.Name(name, ast.Store()), node)], value), node))
    if "__cmp__" in names:
        node.decorator_list.append(node_at(ast.Name(_ORDERED, ast.Load()), node))
    return bool(missing) or "__cmp__" in names


def change_print(node: ast.Expr) -> bool:
    """Changes a statement that Python 3 takes for a sum, or the like, with the function `print` or with its None."""
    first, *others = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    if isinstance(first, ast.BinOp) and isinstance(first.op, ast.RShift) and _is_print(first.left):
        stream = ast.keyword("file", first.right)
        node.value = call_node("print", node.value, *others)
        node.value.keywords.append(node_at(stream, first))
        return True
    holder, field = _place_of_print(first)
    if holder is None:
        return False
    printed = getattr(holder, field)
    only = printed.args[0] if len(printed.args) == 1 else node_at(ast.Tuple(printed.args, ast.Load()), printed)
    setattr(holder, field, only)
    node.value = call_node("print", node.value, first, *others)
    return True


def _place_of_print(value: ast.expr) -> tuple[ast.expr | None, str]:
    """Returns the part of an expression that begins with a call of `print`, and the name of the field with that."""
    while isinstance(value, tuple(_FIRST)):
        field = _FIRST[type(value)]
        inner = getattr(value, field)
        if isinstance(inner, ast.Call) and _is_print(inner.func):
            is_plain = not inner.keywords and not any(isinstance(part, ast.Starred) for part in inner.args)
            return (value, field) if is_plain else (None, "")
        value = inner
    return None, ""


_FIRST: dict[type, str] = {ast.BinOp: "left", ast.Attribute: "value", ast.Call: "func", ast.Subscript: "value"}


def _is_print(value: ast.AST) -> bool:
    return isinstance(value, ast.Name) and value.id == "print"


def call_node(name: str, where: ast.AST, *arguments: ast.expr) -> ast.Call:
    """Returns the call of a function, at the place of another node."""
    return node_at(ast.Call(node_at(ast.Name(name, ast.Load()), where), list(arguments), []), where)


def node_at(node: Any, where: ast.AST) -> Any:
    """Returns a node with the place of another one."""
    return ast.copy_location(node, where)
