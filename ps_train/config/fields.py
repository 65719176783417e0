"""Turns the fields of a dataclass into absl flags, their help texts and checked values.

    field(default, group, help, unit, ...)  --parse_flags-->  values by name  --problems-->  a line for each wrong value

A field is declared once, in `groups.py` or with its verb. Its flag, its line in `--help` (`flag_help.py`), its limits
and its row in docs/flags.md all come from that declaration.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable

from absl import flags

from ps_train.errors import ConfigError, Problem, refuse

_PARSERS: dict[type, flags.ArgumentParser] = {
    bool: flags.BooleanParser(),
    int: flags.IntegerParser(),
    float: flags.FloatParser(),
    str: flags.ArgumentParser(),
}
_KINDS = {bool: "true or false", int: "a 64-bit integer", float: "a number", str: "text"}


@dataclasses.dataclass(frozen=True)
class Rule:
    """The meaning of a flag and its allowed values.

    Attributes:
      group: the heading of the flag in `--help`.
      help: one sentence.
      unit: the unit or form of the value, "" for none.
      minimum: the smallest value allowed, or None.
      above: the value must be larger than this, or None.
      maximum: the largest value allowed, or None.
      below: the value must be smaller than this, or None.
      choices: the values allowed, or () for any.
      form: `form(name, value)` raises a ConfigError that names the flag if a text has the wrong form; or None.
      unset: the default that `--help` shows if the default is None or empty.
      is_path: whether it is a file or folder in a file system of the machine, so not a URL.
      is_shared: whether all workers of a training must have the same value.
      is_of_optimizer: whether it chooses what a model's make_optimizer chooses.
    """

    group: str
    help: str
    unit: str = ""
    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None
    choices: Sequence[str] = ()
    form: Callable[[str, str], Any] | None = None
    unset: str = ""
    is_path: bool = False
    is_shared: bool = False
    is_of_optimizer: bool = False

    def allowed(self, kind: type) -> str:
        """Describes the allowed values in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.minimum is not None and self.maximum is not None:
            return f"{_KINDS[kind]} from {self.minimum:g} to {self.maximum:g}"
        bounds = [("of at least", self.minimum), ("above", self.above), ("up to", self.maximum), ("below", self.below)]
        return " ".join([_KINDS[kind], *(f"{words} {bound:g}" for words, bound in bounds if bound is not None)])

    def permits(self, value: Any) -> bool:
        """Returns whether a value of the right type is within the bounds; NaN and infinity never are."""
        if self.choices:
            return value in self.choices
        if isinstance(value, str):
            return True
        return (
            math.isfinite(value)
            and (self.minimum is None or value >= self.minimum)
            and (self.above is None or value > self.above)
            and (self.maximum is None or value <= self.maximum)
            and (self.below is None or value < self.below)
        )


def field(default: Any, group: str, help: str, **rule: Any) -> Any:  # noqa: A002 (absl's own word)
    """Declares a dataclass field that is also a flag; `rule` takes the further attributes of `Rule`.

    With the unit "path", `is_path` is true unless it is given.
    """
    rule.setdefault("is_path", rule.get("unit") == "path")
    return dataclasses.field(default=default, metadata={"rule": Rule(group, help, **rule)})


def redeclare(cls: type, name: str, **changes: Any) -> Any:
    """Declares the field `name` of `cls` in another class, with another `default` or other attributes of its `Rule`."""
    [known] = [spec for spec in dataclasses.fields(cls) if spec.name == name]
    default = changes.pop("default", known.default)
    return dataclasses.field(default=default, metadata={"rule": dataclasses.replace(known.metadata["rule"], **changes)})


def shared(config: Any) -> dict[str, Any]:
    """Returns name -> value of the flags that must be the same for all workers of a training."""
    return {name: getattr(config, name) for name, (rule, _, _) in rules(type(config)).items() if rule.is_shared}


def rules(*classes: type) -> dict[str, tuple[Rule, type, Any]]:
    """Returns name -> (rule, Python type, default) of every flag of the classes, heading by heading."""
    flags_by_name = {}
    for cls in classes:
        hints = typing.get_type_hints(cls)
        # `dataclasses.fields(cls)` begins with the fields of the last base: look at the bases one by one.
        for part in (*filter(dataclasses.is_dataclass, cls.__bases__), cls):
            for spec in dataclasses.fields(part):
                # Of the class itself only what it declares: a later base may declare a flag of an earlier one again.
                if "rule" in spec.metadata and (part is not cls or spec.name in vars(cls)):
                    flags_by_name[spec.name] = (spec.metadata["rule"], _base_type(hints[spec.name]), spec.default)
    headings = list(dict.fromkeys(rule.group for rule, _, _ in flags_by_name.values()))
    return dict(sorted(flags_by_name.items(), key=lambda item: headings.index(item[1][0].group)))


def _base_type(hint: Any) -> type:
    """Returns `int` for both `int` and `Optional[int]`."""
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    return options[0] if options else hint


def problems(values: Mapping[str, Any], *classes: type) -> list[Problem]:
    """Returns a problem for each value that has the wrong type, is out of bounds or has the wrong form."""
    lines: list[Problem] = []
    for name, (rule, kind, default) in rules(*classes).items():
        value = values[name]
        if value is None and default is None:
            continue
        if not _is_a(kind, value) or not rule.permits(value):
            lines.append(Problem("flag_out_of_range", f"--{name}: got {value!r}; allowed: {rule.allowed(kind)}"))
        elif rule.is_path and "://" in value:
            lines.append(problem_of_url(f"--{name}", value))
        elif rule.form is not None:
            try:
                rule.form(f"--{name}", value)
            except ConfigError as error:
                lines += error.problems
    return lines


def without_password(url: str) -> str:
    """Returns a URL, or what was meant as one, without the password in it."""
    return re.sub(r"(://[^/:]*):(?!\d*/).*@", r"\1:***@", url, flags=re.DOTALL)


def refuse_password(name: str, value: str) -> None:
    """Raises ConfigError, which does not repeat it, if there is a password in a URL."""
    if without_password(value) != value:
        raise ConfigError("credentials_in_url", f"{name}: the URL has a password in it; leave it out, and give the "
                          "credentials as the library of the store reads them, as from environment variables")


def problem_of_url(name: str, value: str) -> Problem:
    """Returns the problem of a URL in place of a path; `name` is that of the flag or argument."""
    value = without_password(value)
    if value.startswith("file://"):
        return Problem("path_is_url",
                       f"{name}: got {value!r}; leave file:// out: {value.removeprefix('file://') or '/'}")
    return Problem("path_is_url", f"{name}: got {value!r}; allowed: a path in a file system of this machine; mount "
                   "that storage, or write to a local folder and copy it")


def _is_a(kind: type, value: Any) -> bool:
    if kind is int:
        return type(value) is int and -(2**63) <= value < 2**63  # TensorFlow counts steps in int64
    return isinstance(value, kind) or (kind is float and type(value) is int)


class _Flag(flags.Flag):
    """A flag that may be given once. It keeps a text of the wrong type, for `problems` to report with all others."""

    def parse(self, argument: Any) -> None:
        if self.present:
            raise ConfigError("flag_given_twice",
                              f"--{self.name}: given twice, the second time as {argument!r}; give it once")
        try:
            super().parse(argument)
        except flags.IllegalFlagValueError:
            self.value, self.present = argument, 1


class FileFlag(str):
    """A flag of a file among the words of a command line, `--name=value`; one on the command line replaces it.

    Attributes:
      name: of the flag.
      value: its text.
      path: of the file.
      line: its number in the file.
      is_of_training: whether it is a flag of `train` or `launch`, which a verb that does not have it leaves out.
      is_used: whether a verb has taken it, or refused it.
    """

    name: str
    value: str
    path: str
    line: int
    is_of_training: bool
    is_used = False

    def __new__(cls, name: str, value: str, path: str, line: int, is_of_training: bool) -> FileFlag:
        """Takes the attributes."""
        flag = super().__new__(cls, f"--{name}={value}")
        flag.name, flag.value, flag.path, flag.line, flag.is_of_training = name, value, path, line, is_of_training
        return flag

    @property
    def place(self) -> str:
        """The file and the line, as in `run.yaml, line 3`."""
        return f"{self.path}, line {self.line}"


def parse_flags(
    argv: Sequence[str], *classes: type, others: Sequence[type] = (), help_command: str = "ps_train --help_all"
) -> tuple[dict[str, Any], frozenset[str]]:
    """Reads a command line, without the program's name, for the flags of the classes.

    Args:
      others: classes with flags of other verbs, which are accepted here; `foreign` reports them.
      help_command: the command that an error recommends.

    Returns:
      (values, given): every flag's value by name, and the names on the command line, with those of `others`.

    Raises:
      ConfigError: an unknown flag, a flag given twice, words that are not flags, or values that are not allowed.
    """
    known = rules(*classes)
    readable = {**rules(*others), **known}
    parsed = flags.FlagValues()
    for name, (rule, kind, default) in readable.items():
        flags.DEFINE_flag(_Flag(_PARSERS[kind], None, name, default, rule.help, boolean=kind is bool), parsed)
    try:
        words = parsed(["ps_train", *(word for word in argv if not isinstance(word, FileFlag))])[1:]
    except flags.UnrecognizedFlagError as error:
        raise _unknown(error.flagname, known, help_command) from None
    except (flags.Error, ValueError) as error:  # a flag without its value, a flagfile that cannot be read
        raise ConfigError("command_line_unreadable",
                          f"{str(error).removeprefix('ERROR:: ')}; see `{help_command}`") from None
    if words:
        raise ConfigError("not_a_flag",
                          f"{words[0]!r} is not a flag; flags are written --name=value, see `{help_command}`")
    _parse_file_flags(argv, parsed, known, help_command)
    values = {name: parsed[name].value for name in known}
    values.update((name, os.path.expanduser(str(values[name]))) for name, (rule, _, _) in known.items()
                  if values[name] and (rule.is_path or rule.unit.startswith("path")))  # a shell leaves ~ in --name=~/x
    refuse(problems(values, *classes))
    return values, frozenset(name for name in readable if parsed[name].present and (
        parsed[name].value or parsed[name].default) != "")  # as `--train_dir=$RUN` gives no folder where RUN is not set


def _unknown(name: str, known: Collection[str], help_command: str) -> ConfigError:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean --{near[0]}? " if near else ""
    return ConfigError("flag_unknown", f"unknown flag --{name}; {hint}`{help_command}` lists the flags")


def _parse_file_flags(argv: Sequence[str], parsed: flags.FlagValues, known: Collection[str], help_command: str) -> None:
    """Parses the flags of a file that are not on the command line, too."""
    by_hand = {name for name in known if parsed[name].present}
    for word in argv:
        if not isinstance(word, FileFlag) or word.name in by_hand or (word.name not in known and word.is_of_training):
            continue
        word.is_used = True
        if word.name not in known:
            raise _unknown(word.name, known, help_command)
        parsed[word.name].parse(word.value)


def as_flags(config: Any, names: Collection[str]) -> list[str]:
    """Returns these of a config's values as flags of a command line."""
    flags = []
    for name, (_, kind, _) in rules(type(config)).items():
        if name in names:
            value = getattr(config, name)
            flags.append(f"--{'' if value else 'no'}{name}" if kind is bool else f"--{name}={value}")
    return flags
