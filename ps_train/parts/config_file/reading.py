"""Reads flags from a file of YAML, TOML or JSON, and says in errors on which line a flag stands.

    --config=run.yaml --> [FileFlag("train_steps", "500", ...), ...] --> fields.parse_flags, as if typed

A value is taken as it is written: `1e-3` and `true` mean what they mean on the command line. A list is joined by
commas, and a mapping, as for params, becomes `name=value,...`. A flag without a value, or with null, is left out.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ps_train.config import fields
from ps_train.config.fields import FileFlag
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError, Problem, refuse

_FLAG = re.compile(r"--?config(?:=(.*))?", re.DOTALL)
_NAMES = re.compile(r"--(\w+)")


class _Setting(NamedTuple):
    """A name in a file, its line, and its value, of which lists and mappings are not checked yet."""

    name: str
    value: Any
    line: int


class _Pairs(list):
    """A mapping as (name, value), which shows a name that is there twice."""


@contextlib.contextmanager
def with_file_flags(arguments: Sequence[str], own: Sequence[str]) -> Iterator[list[str]]:
    """Yields the arguments of a verb with the flags of the file that --config names, behind those of ps_train.

    A ConfigError of the body about such a flag gets the file and the line.

    Args:
      own: those of the arguments that are for ps_train; the first may be the name of a part, and the last a script's.

    Raises:
      ConfigError: the file cannot be read, or --config is given twice.
    """
    typed, path = _without_config(own)
    if path is None:
        yield list(arguments)
        return
    file_flags = read_flags(path)
    first = 0 if list(arguments[:len(own)]) == list(own) else 1
    try:
        yield [*arguments[:first], *typed, *file_flags, *arguments[first + len(own):]]
    except ConfigError as error:
        used = {flag.name: flag for flag in file_flags if flag.is_used}
        error.problems = tuple(_with_place(problem, used) for problem in error.problems)
        raise


def _without_config(words: Sequence[str]) -> tuple[list[str], str | None]:
    """Returns the words without --config and its value, and that value, None if it is not given."""
    typed, paths, left = [], [], iter(words)
    for word in left:
        if match := _FLAG.fullmatch(word):
            paths.append(match[1] if match[1] is not None else next(left, ""))
        else:
            typed.append(word)
    if len(paths) > 1:
        raise ConfigError("flag_given_twice", f"--config: given twice, the second time as {paths[1]!r}; give it once")
    return typed, paths[0] if paths else None


def _with_place(problem: Problem, file_flags: Mapping[str, FileFlag]) -> Problem:
    """Returns a problem with the place of each flag of the file that it names."""
    flags = [file_flags[name] for name in dict.fromkeys(_NAMES.findall(problem)) if name in file_flags]
    if not flags:
        return problem
    lines = sorted({flag.line for flag in flags})
    place = f"{flags[0].path}, line{'s' * (len(lines) > 1)} {' and '.join(map(str, lines))}"
    first, *more = problem.split("\n")
    return Problem(problem.code, "\n".join([f"{first} ({place})", *more]))


def read_flags(path: str) -> list[FileFlag]:
    """Returns the flags in a file, in its order.

    Raises:
      ConfigError: it cannot be read, is no mapping of names, has a name twice, or a value that no flag can have.
    """
    of_training = fields.rules(Config, LaunchConfig)
    settings = _read_settings(path)
    names = [setting.name for setting in settings]
    refuse([Problem("flag_given_twice", f"--{name}: given twice in {path}, line {line}; give it once")
            for index, (name, _, line) in enumerate(settings) if name in names[:index]])
    return [FileFlag(name, _text_of(name, value, f"{path}, line {line}"), path, line, name in of_training)
            for name, value, line in settings if value is not None]


def _read_settings(path: str) -> list[_Setting]:
    readers: dict[str, Callable[[str, str], list[_Setting]]] = {
        ".yaml": _read_yaml, ".yml": _read_yaml, ".toml": _read_toml, ".json": _read_json}
    reader = readers.get(os.path.splitext(path)[1].lower())
    if reader is None:
        raise ConfigError("flag_malformed", f"--config: got {path!r}; allowed: a file whose name ends with "
                          f"{', '.join(readers)}")
    try:
        # A shell leaves ~ in --config=~/run.yaml; an editor on Windows begins a file with a BOM.
        with open(os.path.expanduser(path), encoding="utf-8-sig") as file:
            text = file.read()
    except OSError as error:
        raise ConfigError("config_file_unreadable", f"--config: cannot read {path}: {error.strerror}; give the path "
                          "of a file with flags") from None
    except UnicodeDecodeError:
        raise ConfigError("config_file_malformed", f"{path}: not text in UTF-8; save it as such") from None
    return reader(text, path)


def _malformed(path: str, line: int, what: str) -> ConfigError:
    return ConfigError("config_file_malformed", f"{path}, line {line}: {what}; allowed: names of flags, each with "
                       "its value")


def _text_of(name: str, value: Any, place: str) -> str:
    """Returns a value as it would stand on the command line."""
    if isinstance(value, _Pairs):
        items = [f"{key}={_scalar(name, item, place)}" for key, item in value]
        return ",".join(items)
    if isinstance(value, list):
        return ",".join(_scalar(name, item, place) for item in value)
    return _scalar(name, value, place)


def _scalar(name: str, value: Any, place: str) -> str:
    if not isinstance(value, (str, bool)):
        raise ConfigError("config_value_malformed", f"--{name}: its value is nested too deeply, or has an empty item "
                          f"({place}); allowed: one value, or a list or mapping of values")
    return str(value).lower() if isinstance(value, bool) else value


def _read_json(text: str, path: str) -> list[_Setting]:
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=str)
    except json.JSONDecodeError as error:
        raise _malformed(path, error.lineno, error.msg) from None
    if not isinstance(pairs, _Pairs):
        raise _malformed(path, 1, "not a JSON object")
    lines = text.splitlines()
    return [_Setting(name, value, _line_of(rf'"{re.escape(name)}"\s*:', lines)) for name, value in pairs]


def _read_toml(text: str, path: str) -> list[_Setting]:
    try:
        tomllib: Any = importlib.import_module("tomllib")
    except ModuleNotFoundError:
        raise ConfigError("package_missing", f"--config={path}: TOML needs Python 3.11 or newer; give a file of YAML "
                          "or JSON") from None
    try:
        values = tomllib.loads(text, parse_float=str)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        what = str(error).partition(" (at ")[0]
        raise _malformed(path, int(line[1]) if line else text.count("\n") + 1, what) from None
    lines = text.splitlines()
    return [_Setting(name, _of_toml(value), _line_of(rf"""\s*\[?\s*["']?{re.escape(name)}["']?\s*[]=.]""", lines))
            for name, value in values.items()]


def _of_toml(value: Any) -> Any:
    if isinstance(value, dict):
        return _Pairs((name, _of_toml(item)) for name, item in value.items())
    if isinstance(value, list):
        return [_of_toml(item) for item in value]
    return value if isinstance(value, bool) else str(value)


def _line_of(pattern: str, lines: Sequence[str]) -> int:
    """Returns the number of the first line that begins with a name, or in JSON has it."""
    find = re.compile(pattern).search if pattern.startswith('"') else re.compile(pattern).match
    return next((number for number, line in enumerate(lines, 1) if find(line)), 1)


def _read_yaml(text: str, path: str) -> list[_Setting]:
    try:
        yaml: Any = importlib.import_module("yaml")
    except ModuleNotFoundError:
        raise ConfigError("package_missing", f"--config={path}: YAML needs the package pyyaml, which is not installed: "
                          "`pip install pyyaml`, or `pip install 'ps_train[yaml]'`") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _malformed(path, mark.line + 1, error.problem or error.context) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise _malformed(path, 1, str(error).partition("\n")[0]) from None
    if root is None:  # an empty file
        return []
    if not isinstance(root, yaml.MappingNode):
        raise _malformed(path, root.start_mark.line + 1, "not a mapping")
    for key, _ in root.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _malformed(path, key.start_mark.line + 1, "a name is no text")
    return [_Setting(key.value, _of_node(yaml, value), key.start_mark.line + 1) for key, value in root.value]


def _of_node(yaml: Any, node: Any) -> Any:
    """Returns the value of a node; what is nested deeper than a list or mapping stays a node, which is then refused."""
    if isinstance(node, yaml.SequenceNode):
        return [_of_scalar(yaml, item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return _Pairs((key.value, _of_scalar(yaml, item)) for key, item in node.value)
    return _of_scalar(yaml, node)


def _of_scalar(yaml: Any, node: Any) -> Any:
    if not isinstance(node, yaml.ScalarNode):
        return node
    return None if node.tag == "tag:yaml.org,2002:null" else node.value
