"""How does the code of a script change on its way into Python? `--python2` and `--map_path`; no file is changed.

    file --> decode_source --> as_python3 --> Python 2's numbers --> other paths --> compiled
                      `--> leftovers, if Python 3 can read it --'

Code of Python 2 becomes Python 3 by fissix, if that is installed; its numbers stay those of Python 2, and its
division, unless the file imports Python 3's from __future__. A file is Python 2 if --python2 says so, or if only
fissix can read it.

This holds for the script and for each local module that it imports. The file name and the line numbers stay, so a
traceback shows the lines of the original file.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import logging
import pathlib
import sys
import tokenize
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from ps_train.errors import ConfigError
from ps_train.parts.legacy import (
    chained_pandas,
    division,
    encoded_text,
    ended_generators,
    implicit_imports,
    keyword_names,
    late_globals,
    leaked_names,
    leftovers,
    old_protos,
    one_number,
    own_files,
    pandas_advice,
    path_mapping,
    proto_strings,
    python2_bytes,
    python2_calls,
    python2_library,
    python2_numbers,
    python2_order,
    slice_lists,
    type_checks,
)
from ps_train.runtime import advice

MARK = "__ps_train_python2__"  # a name in each module that was converted


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The changes to make.

    Attributes:
      is_python2: whether the code is Python 2.
      mapped: pairs of paths: as written in the code, and as replaced.
      finds_python2: whether a file that Python 3 cannot read is Python 2, and what remained of it is changed elsewhere.
    """

    is_python2: bool
    mapped: tuple[tuple[str, str], ...]
    finds_python2: bool = False

    def __bool__(self) -> bool:
        """Returns whether anything may change."""
        return self.is_python2 or bool(self.mapped) or self.finds_python2

    def compile(self, path: str, *, is_in_package: bool = False) -> types.CodeType:
        """Returns the code of a file.

        Args:
          is_in_package: whether it is a module of a package, so that Python 2 looked for its imports there first.

        Raises:
          SyntaxError: the code is wrong, in Python 3 and in Python 2.
          ConfigError: the conversion needs a package.
        """
        with _deep_recursion():
            return compile(self._changed_tree(path, is_in_package)[0], path, "exec", dont_inherit=True)

    def compile_changed(self, path: str, *, is_in_package: bool = False) -> types.CodeType | None:
        """Returns the same, or None if nothing of the code changes."""
        with _deep_recursion():
            tree, is_changed = self._changed_tree(path, is_in_package)
            return compile(tree, path, "exec", dont_inherit=True) if is_changed else None

    def _changed_tree(self, path: str, is_in_package: bool) -> tuple[ast.Module, bool]:
        """Returns the tree of a file, and whether it differs from that of its text."""
        text = decoded_text(path)
        tree, has_names = (None, False) if self.is_python2 else self._tree_of_python3(text, path)
        is_converted = tree is None
        if tree is None:
            tree, _ = _parse(as_python3(text, path, is_in_package=is_in_package), path)
            for node in ast.walk(tree):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    python2_library.change_import(node, _IN_MEMORY)
        is_changed = (is_converted or (self.finds_python2 and leftovers.may_be_in(text))) and (
            leftovers.change_leftovers(tree))
        if is_converted or self.finds_python2:
            is_changed |= leaked_names.change_leaked_names(tree)
            if chained_pandas.may_have_chains(text):
                pandas_advice.warn_of_copies(tree)
                is_changed |= chained_pandas.change_chains(tree)
            is_changed |= is_in_package and not is_converted and implicit_imports.change_imports(tree, path)
            is_changed |= old_protos.may_be_generated(text) and old_protos.change_generated(tree)
            is_changed |= "yield" in text and ended_generators.change_generators(tree)
            is_changed |= type_checks.may_check_types(text) and type_checks.change_type_checks(tree)
            is_changed |= one_number.may_take_number(text) and one_number.change_numbers(tree)
            is_changed |= slice_lists.may_have_lists(text) and slice_lists.change_lists(tree)
        if is_converted:
            tree = python2_numbers.change_functions(python2_calls.change_open_modes(tree))
            tree = division.change_division(tree, text)
            tree = encoded_text.change_encode(proto_strings.change_bytes_lists(tree))
            tree = python2_bytes.change_bytes(tree)
            tree = _marked(python2_order.change_order(tree))
        if self.mapped:
            tree = path_mapping.Paths(self.mapped).visit(tree)
        return tree, is_changed or is_converted or has_names or bool(self.mapped)

    def _tree_of_python3(self, text: str, path: str) -> tuple[ast.Module | None, bool]:
        """Returns what keyword_names.py makes of a text that Python 3 can read.

        Returns None for the tree if only Python 2 can read it, and such files are found.
        """
        try:
            with warnings.catch_warnings():  # Python warns again when it compiles the code itself
                warnings.simplefilter("ignore")
                tree, has_names = (
                    _parse(text, path) if self.finds_python2 else (ast.parse(text, path), False))
            return (None, False) if self.finds_python2 and _has_late_imports(tree) else (tree, has_names)
        except SyntaxError:
            if self.finds_python2 and is_text_python2(text, path):
                return None, False
            raise

    def run(self, path: str, run_name: str = "__main__") -> dict[str, Any]:
        """Runs a script as the main module, returns its names, and raises what it raises."""
        main = types.ModuleType(run_name)
        main.__file__ = path
        sys.modules[run_name] = main
        exec(self.compile(path), main.__dict__)
        return main.__dict__

    def install(self) -> None:
        """Changes each local module that is imported from now on."""
        leftovers.install_changes()
        chained_pandas.install_chains()
        one_number.install_number()
        type_checks.install_types()
        slice_lists.install_lists()
        division.install_division()
        python2_numbers.install_functions()
        python2_order.install_order()
        proto_strings.install_texts()
        encoded_text.install_encoder()
        python2_bytes.install_bytes()
        if self.is_python2 or self.finds_python2:
            python2_library.read_files_of_python2()
        sys.meta_path[:] = [_Finder(self), *sys.meta_path, python2_library.LibraryFinder()]


def _parse(text: str, path: str) -> tuple[ast.Module, bool]:
    """Returns the tree of a text, and whether it differs, so that today's Python takes what an older one took."""
    tree, is_changed = keyword_names.parse(text, path)
    return tree, ("global " in text and late_globals.change_late_globals(tree)) or is_changed


def _marked(tree: ast.Module) -> ast.Module:
    """Adds the mark of a converted module, behind the docstring and imports from __future__."""
    end = max((place for place, line in enumerate(tree.body, 1)
               if isinstance(line, ast.ImportFrom) and line.module == "__future__"), default=0)
    if not end and ast.get_docstring(tree, clean=False) is not None:
        end = 1
    tree.body.insert(end, ast.parse(f"{MARK} = True").body[0])
    return tree


def _has_late_imports(tree: ast.Module) -> bool:
    """Returns whether strings stand between the docstring and `from __future__`, such as a licence, as in Python 2."""
    places = [place for place, line in enumerate(tree.body)
              if isinstance(line, ast.ImportFrom) and line.module == "__future__"]
    return any(isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
               for line in tree.body[1:max(places, default=0)])


@contextlib.contextmanager
def _deep_recursion() -> Iterator[None]:
    """Lets the visitors below, and Python's compiler, go as deep as a sum of a thousand terms is."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


_RECURSION_LIMIT = 10_000  # a visitor takes three calls for each level


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: Any = None):
        """Returns the spec of a module in a file of the user, whose loader changes it; else None."""
        own = _hidden_by_checkout(fullname) if path is None else None
        spec = own or importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not spec.origin:
            return own
        if type(spec.loader) is importlib.machinery.SourcelessFileLoader:
            return _without_code_of_python2(spec) or own
        if type(spec.loader) is not importlib.machinery.SourceFileLoader:
            return own
        if own_files.is_own(spec.origin):
            spec.loader = _Loader(fullname, spec.origin, self._conversion)
        elif fullname.endswith("_pb2"):
            spec.loader = _ProtoLoader(fullname, spec.origin)
        else:
            return own
        return spec


def _without_code_of_python2(spec: importlib.machinery.ModuleSpec) -> importlib.machinery.ModuleSpec | None:
    """Returns a spec for a package that has nothing but the `__init__.pyc` of Python 2; None for any other."""
    if spec.submodule_search_locations is None:
        return None
    with open(spec.origin or "", "rb") as file:
        if file.read(len(importlib.util.MAGIC_NUMBER)) == importlib.util.MAGIC_NUMBER:
            return None
    package = importlib.machinery.ModuleSpec(spec.name, None, is_package=True)
    package.submodule_search_locations = list(spec.submodule_search_locations)
    return package


def _hidden_by_checkout(name: str) -> importlib.machinery.ModuleSpec | None:
    """Returns the spec of a package such as `models`, of which ps_train's checkout, earlier in sys.path, has one, too.

    Many projects have a `models` and a `data`, and add their folder to the end of sys.path.
    """
    places = [str(pathlib.Path(place or ".").resolve()) for place in sys.path]
    checkout = str(own_files.CHECKOUT)
    if checkout not in places[1:] or places[0] == checkout or not (own_files.CHECKOUT / name).is_dir():
        return None
    spec = importlib.machinery.PathFinder.find_spec(name, [place for place in places if place != checkout])
    return spec if spec is not None and (spec.origin or _has_modules(spec)) else None


def _has_modules(spec: importlib.machinery.ModuleSpec) -> bool:
    """Returns whether a folder without `__init__.py` has modules, and is not one of data."""
    return any(any(pathlib.Path(folder).glob("*.py")) for folder in spec.submodule_search_locations or ())


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, conversion: Conversion) -> None:
        super().__init__(fullname, path)
        self._conversion = conversion

    def get_code(self, fullname: str) -> types.CodeType:
        """Returns the changed code, which no .pyc file has; if nothing changes, that of the original, by its file."""
        is_in_package = "." in fullname or self.is_package(fullname)
        return self._conversion.compile_changed(self.path, is_in_package=is_in_package) or super().get_code(fullname)


class _ProtoLoader(importlib.machinery.SourceFileLoader):
    """Changes a module of a package if an old `protoc` has generated it."""

    def get_code(self, fullname: str) -> types.CodeType:
        """Returns the changed code, or that of the original, by its file."""
        text = decoded_text(self.path)
        if old_protos.may_be_generated(text):
            tree = ast.parse(text, self.path)
            if old_protos.change_generated(tree):
                return compile(tree, self.path, "exec", dont_inherit=True)
        return super().get_code(fullname)


_TAB = 8  # columns between Python 2's tab stops


def decoded_text(path: str) -> str:
    """Returns the text of a file of code."""
    return decode_source(pathlib.Path(path).read_bytes())


def decode_source(source: bytes) -> str:
    """Returns the text of a file: in the encoding that it names, or UTF-8; Latin-1 if it is not in that."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = source.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_text_python2(text: str, path: str) -> bool:
    """Returns whether only Python 2 can read a text: Python 3 cannot, but what the conversion makes of it."""
    error = _syntax_error(text, path)
    if error is None or not _has_fissix():
        return error is not None and advice.is_python2(error)
    return _syntax_error(as_python3(text, path), path) is None


def _syntax_error(text: str, path: str) -> SyntaxError | None:
    try:
        with _deep_recursion(), warnings.catch_warnings():  # Python warns of "\\d" when it compiles the code itself
            warnings.simplefilter("ignore")
            compile(_parse(text, path)[0], path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except ValueError:  # a null byte
        return None
    return None


def as_python3(text: str, path: str, *, is_in_package: bool = False) -> str:
    """Returns the text of a Python 2 file in Python 3, line by line.

    Args:
      is_in_package: see `Conversion.compile`.

    Raises:
      ConfigError: fissix is needed, and not installed.
      SyntaxError: the code is wrong in Python 2, too.
    """
    expanded = expand_tabs(text)
    if not _has_fissix():
        with contextlib.suppress(SyntaxError, ValueError):
            compile(_parse(expanded, path)[0], path, "exec", dont_inherit=True)
            return expanded
        raise ConfigError("package_missing", f"--python2: {path} needs fissix, which is not installed: "
                          "pip install 'ps_train[python2]'")
    # fissix takes a file for a part of a package if there is an __init__.py beside it; there is none below a file.
    return _refactored(expanded, path if is_in_package else f"{path}/{pathlib.Path(path).name}") or expanded


def expand_tabs(text: str) -> str:
    """Returns the text with spaces for the tabs before each line's code; strings keep theirs."""
    in_strings: set[int] = set()  # the numbers of lines that begin inside a string
    for match in keyword_names.COMMENT_OR_STRING.finditer(text):
        first = text.count("\n", 0, match.start()) if "\n" in match[0] else 0
        in_strings.update(range(first + 1, first + 1 + match[0].count("\n")))
    lines = text.split("\n")
    return "\n".join(line if number in in_strings else _expanded(line) for number, line in enumerate(lines))


def _expanded(line: str) -> str:
    code = line.lstrip(" \t\f")
    return line[:len(line) - len(code)].replace("\f", "").expandtabs(_TAB) + code


def _has_fissix() -> bool:
    return importlib.util.find_spec("fissix") is not None


@functools.lru_cache(maxsize=8)
def _refactored(text: str, path: str) -> str | None:
    """Returns the text in Python 3, by fissix, or None if fissix cannot read it."""
    for has_print_function in (False, True):  # Python 3.0's, with parentheses, needs another grammar
        try:
            with _deep_recursion():
                tree = _tool(has_print_function).refactor_string(text.rstrip("\n") + "\n", path)
        except Exception as error:  # noqa: BLE001 (of its parser or tokenizer, or of one of its rules)
            logging.getLogger(__name__).debug("%s: %s", path, error)
        else:
            with _deep_recursion():
                return str(tree)
    return None


_NOT_USED = "fissix.fixes.fix_sorted"  # takes the axis of array.sort(0) for a function; leftovers.py sees the values
_IN_MEMORY = ("StringIO", "cStringIO")  # which took bytes, too; `io` refuses them


@functools.cache
def _tool(has_print_function: bool) -> Any:
    from fissix import refactor  # noqa: PLC0415 (an extra)
    from fissix.fixes import fix_imports  # noqa: PLC0415 (an extra)

    for name in _IN_MEMORY:
        fix_imports.MAPPING.pop(name, None)
    logging.getLogger("fissix").setLevel(logging.ERROR)
    logging.getLogger("RefactoringTool").setLevel(logging.ERROR)
    fixers = [name for name in refactor.get_fixers_from_package("fissix.fixes") if name != _NOT_USED]
    return refactor.RefactoringTool(fixers, {"print_function": has_print_function})
