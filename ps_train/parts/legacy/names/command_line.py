"""The command line as scripts before TensorFlow 1.5 read it, by argparse; since then it is absl that reads it."""

from __future__ import annotations

import dis
import linecache
import operator
import pathlib
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from absl import flags
from tensorflow.python.platform import flags as platform_flags

from ps_train.parts.legacy import own_files
from ps_train.parts.legacy.names.arrays import set_missing, wrap

_Wrapper = platform_flags._FlagValuesWrapper  # noqa: SLF001 (it has no public name)
_own_dictionary = vars(_Wrapper)["__dict__"].__get__  # object -> its attributes


def repair_flags() -> None:
    """Changes absl for this whole process."""
    # TF1's flags began empty; absl has some, such as --log_dir and --v, which scripts define too.
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True
    # Before 1.5 scripts parsed the flags themselves by this private name.
    set_missing(flags.FlagValues, "_parse_flags", _parse_flags)
    flags.Flag.__bool__ = lambda flag: True  # absl refuses it today
    wrap("_set_default", _set_default, flags.Flag)
    wrap("__call__", _parse, flags.FlagValues)
    wrap("__setattr__", _set_flag, flags.FlagValues)
    wrap("__getattr__", _read_flag, _Wrapper)
    object.__setattr__(platform_flags.FLAGS, "__class__", _Flags)  # its own method would set a flag


def _set_flag(original: Callable, values: flags.FlagValues, name: str, value: Any) -> None:
    """Sets what the script has not defined, too: before 1.5 that became a flag."""
    try:
        original(values, name, value)
    except flags.UnrecognizedFlagError:
        values[name] = flags.Flag(flags.ArgumentParser(), flags.ArgumentSerializer(), name, None, "set by the script")
        original(values, name, value)


def _parse(original: Callable, values: flags.FlagValues, argv: list[str], *args: Any, **kwargs: Any) -> list[str]:
    """Takes the value of a boolean flag from the next word, too: absl would take `--sync False` for --sync."""
    words = list(argv)
    for place in range(len(words) - 2, 0, -1):
        name = re.fullmatch(r"--?(\w+)", words[place])
        is_boolean = name and name[1] in values and isinstance(values[name[1]], flags.BooleanFlag)
        if is_boolean and words[place + 1].lower() in _BOOLEANS:
            words[place:place + 2] = [f"{words[place]}={words[place + 1]}"]
    return original(values, words, *args, **kwargs)


_BOOLEANS = ("true", "false", "t", "f", "1", "0")


def _parse_flags(self: flags.FlagValues, args: list[str] | None = None) -> None:
    if not self.is_parsed():
        self(sys.argv if args is None else [sys.argv[0], *args], known_only=True)


class _Dictionary(dict):
    """The attributes of `tf.app.flags.FLAGS`; until 1.4, `__flags` was a dictionary of the flags' values."""

    def __missing__(self, key: str) -> dict[str, Any]:
        if key != "__flags":
            raise KeyError(key)
        return _Values(self["__wrapped"])


class _Values(dict):
    """The values of the script's flags, without those of libraries; what is set here is set for all."""

    def __init__(self, flag_values: flags.FlagValues) -> None:
        self._flag_values = flag_values
        names = {flag.name for module, defined in flag_values.flags_by_module_dict().items()
                 if not module.startswith(("absl.", "tensorflow.", "ps_train.")) for flag in defined}
        super().__init__({name: flag_values[name].value for name in sorted(names)})

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._flag_values, name, value)
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def __reduce__(self) -> tuple:
        return dict, (dict(self),)  # scripts pickle or copy the settings of a training


class _Flags(_Wrapper):
    """The type of `tf.app.flags.FLAGS`."""

    __dict__ = property(lambda self: _Dictionary(_own_dictionary(self)))

    def __getattribute__(self, name: str) -> Any:
        # The items of `__flags` were values until 1.4, and are flags since then, whose `value` a script asks for.
        if name == "__flags" and not _asks_for_values(sys._getframe(1)):  # noqa: SLF001 (the only way to the script)
            return _Values(self.__dict__["__wrapped"])
        return super().__getattribute__(name)


def _read_flag(original: Callable, wrapper: Any, name: str) -> Any:
    """Reads a flag before all of them are defined, or beside those of getopt, as before 1.5.

    They are parsed again at the next one.
    """
    values = wrapper.__dict__["__wrapped"]
    if not values.is_parsed():
        rest = values(sys.argv, known_only=True)[1:]
        if any(_is_defined_later(word) for word in rest):
            values.set_gnu_getopt()  # the value of a flag of getopt ends nothing
            values(sys.argv, known_only=True)
            value = original(wrapper, name)
            values.unparse_flags()
            return value
        values.unparse_flags()
    return original(wrapper, name)


# The lists of protocol buffers have a value, too, and so do summaries and the dimensions of shapes.
_OF_FLAGS = re.compile(r"(?<!_list)(?<!ummary)(?<!\d\])\.(value|default|present|help|serialize)\b(?!\.(add|extend)\()")
# Where the flags have gone elsewhere, in an item with a name.
_OF_ITEMS = re.compile(r"""(\[(["']\w+["']|(k|key|name|attr|arg)\w*)\]|\b(v|val|value|flag)\w*)""" + _OF_FLAGS.pattern)

_LOOPS = re.compile(r"\bfor\s+([^:\n]*?\w[^:\n]*?)\s+in\s+[^:\n]*?\.(?:iter)?(?:items|values)\(\)")  # their targets


def _asks_for_values(frame: types.FrameType) -> bool:
    """Returns whether the function that reads the flags, or another of the user, asks them for what a flag has."""
    lines = linecache.getlines(frame.f_code.co_filename)
    if any(_OF_FLAGS.search(lines[number - 1]) for number in _lines(frame.f_code) if number <= len(lines)):
        return True
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = {frame.f_code.co_filename, *(path for path in files if path and own_files.is_own(path))}
    return any(_asks_items("".join(linecache.getlines(path))) for path in paths)


def _asks_items(text: str) -> bool:
    """Returns whether a file asks an item for what a flag has: one with such a name, or that of a loop over items."""
    names = {re.findall(r"\w+", target)[-1] for target in _LOOPS.findall(text)}
    return _OF_ITEMS.search(text) is not None or any(
        re.search(rf"(?<![\w.]){name}\.value\b(?!\.(add|extend)\()", text) for name in names)


def _lines(code: types.CodeType) -> set[int]:
    """Returns the numbers of the lines of a function, with those of its lambdas and comprehensions."""
    inner = [value for value in code.co_consts if isinstance(value, types.CodeType) and value.co_name.startswith("<")]
    return {line for _, line in dis.findlinestarts(code) if line}.union(*map(_lines, inner))


def _is_defined_later(word: str) -> bool:
    """Returns whether a word of the command line is a flag whose name is in the text of the script, or such as "-s"."""
    name = word.lstrip("-").partition("=")[0]
    try:
        text = pathlib.Path(sys.argv[0]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return word.startswith("-") and re.search(rf"""["']-{{0,2}}{re.escape(name)}["']""", text) is not None


def _set_default(original: Callable, flag: flags.Flag, value: Any) -> None:
    """Keeps a default that the flag's parser refuses, as argparse did before 1.5."""
    try:
        original(flag, value)
    except (flags.IllegalFlagValueError, AttributeError, TypeError):  # a list's parser calls methods of a text
        flag.default = _as_int(value) if isinstance(flag.parser, flags.IntegerParser) else value
        flag.default_as_str = repr(str(flag.default))
        if flag.using_default_value:
            flag.value = flag.default


def _as_int(value: Any) -> Any:
    """Returns the int that numpy's integers and floats such as 1e6 stand for; any other value as it is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    try:
        return operator.index(value)
    except TypeError:
        return value
