"""Turns the fields of a dataclass into absl flags, their help, and checked values.

    field(default, group, help, unit, ...)  --define-->  absl FlagValues  --read-->  dataclass instance

A field is written once, in `config.py`; its flag, its line in `--help`, its bounds and its row in the README's
table all come from there.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
import typing
from collections.abc import Iterable, Sequence
from typing import Any

from absl import flags

from ps_train.errors import ConfigError

_DEFINERS = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}
_KINDS = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a flag means and which values it may have.

    Attributes:
      group: the heading that the flag stands under in `--help`.
      help: one sentence.
      unit: the unit or form of the value, "" for none.
      minimum: the smallest value allowed, or None.
      above: the value must be larger than this, or None.
      choices: the values allowed, or () for any.
      unset: what `--help` shows as default where the default is None or empty.
    """

    group: str
    help: str
    unit: str = ""
    minimum: float | None = None
    above: float | None = None
    choices: Sequence[str] = ()
    unset: str = ""

    def allowed(self, kind: type) -> str:
        """Says in words which values are allowed."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = _KINDS[kind]
        if self.minimum is not None:
            words += f" of at least {self.minimum}"
        if self.above is not None:
            words += f" above {self.above}"
        return words

    def permits(self, value: Any) -> bool:
        """Tells whether a value of the right type obeys the bounds; NaN and infinity obey none."""
        if self.choices and value not in self.choices:
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        if self.minimum is not None and value < self.minimum:
            return False
        return self.above is None or value > self.above


def field(default: Any, group: str, help: str, **rule: Any) -> Any:  # noqa: A002 (absl's own word)
    """Declares a dataclass field that is also a flag; `rule` takes the further attributes of `Rule`."""
    return dataclasses.field(default=default, metadata={"rule": Rule(group, help, **rule)})


def rules(*classes: type) -> dict[str, tuple[Rule, type, Any]]:
    """Returns name -> (rule, Python type, default) of every flag field of the classes, in order."""
    found = {}
    for cls in classes:
        hints = typing.get_type_hints(cls)
        for spec in dataclasses.fields(cls):
            if "rule" in spec.metadata:
                found[spec.name] = (spec.metadata["rule"], _base_type(hints[spec.name]), spec.default)
    return found


def _base_type(hint: Any) -> type:
    """Returns `int` for both `int` and `Optional[int]`."""
    options = [option for option in typing.get_args(hint) if option is not type(None)]
    return options[0] if options else hint


def check(instance: Any) -> None:
    """Raises ConfigError that names every field of the instance with a value out of bounds or of a wrong type."""
    problems = []
    for name, (rule, kind, default) in rules(type(instance)).items():
        value = getattr(instance, name)
        if value is None and default is None:
            continue
        typed = isinstance(value, (int, float) if kind is float else kind)
        if not typed or (isinstance(value, bool) and kind is not bool) or not rule.permits(value):
            problems.append(f"--{name}: got {value!r}; allowed: {rule.allowed(kind)}")
    if problems:
        raise ConfigError("\n".join(problems))


def parse(argv: Sequence[str], *classes: type) -> tuple[dict[str, Any], frozenset[str]]:
    """Reads a command line, without the program's name, for the flags of the classes.

    Returns:
      (values, given): every flag's value by name, and the names that stood on the command line.

    Raises:
      ConfigError: an unknown flag, a flag given twice, a value of the wrong type, or words that are no flag.
    """
    values = flags.FlagValues()
    known = rules(*classes)
    for name, (rule, kind, default) in known.items():
        _DEFINERS[kind](name, default, rule.help, flag_values=values)
    try:
        arguments = values.read_flags_from_files(list(argv), force_gnu=True)
        _refuse_repeats(arguments, known)
        rest = values(["ps_train", *arguments])[1:]
    except flags.IllegalFlagValueError as error:
        raise ConfigError(_explain(error, known)) from None
    except flags.Error as error:
        raise ConfigError(f"{error}; `ps_train --help` lists the flags") from None
    if rest:
        raise ConfigError(f"{rest[0]!r} is no flag; flags are written --name=value, see `ps_train --help`")
    given = frozenset(name for name in known if values[name].present)
    return {name: getattr(values, name) for name in known}, given


def _refuse_repeats(arguments: Iterable[str], known: dict[str, tuple[Rule, type, Any]]) -> None:
    seen: dict[str, str] = {}
    for argument in arguments:
        name = argument.lstrip("-").split("=")[0]
        name = name[2:] if name not in known and name.startswith("no") else name
        if not argument.startswith("-") or name not in known:
            continue
        if name in seen:
            raise ConfigError(f"--{name}: given twice, as {seen[name]} and {argument}; give it once")
        seen[name] = argument


def _explain(error: flags.Error, known: dict[str, tuple[Rule, type, Any]]) -> str:
    """Turns absl's `flag --x=abc: invalid literal ...` into what, got, allowed."""
    given = str(error).split(": ")[0].replace("flag ", "", 1)
    name, _, value = given.lstrip("-").partition("=")
    if name not in known:
        return str(error)
    rule, kind, _ = known[name]
    return f"--{name}: got {value!r}; allowed: {rule.allowed(kind)}"


def help_text(*classes: type, width: int = 100) -> str:
    """Returns the flags in groups, each with its unit and default."""
    lines: list[str] = []
    group = None
    for name, (rule, _, default) in rules(*classes).items():
        if rule.group != group:
            group = rule.group
            lines += ["", f"{group}:"]
        text = f"{rule.help} ({describe_default(rule, default)})"
        lines += textwrap.wrap(
            text, width, initial_indent=f"  --{name:<22} ", subsequent_indent=" " * 27
        )
    return "\n".join(lines)


def describe_default(rule: Rule, default: Any) -> str:
    """Returns `default 100, examples` and the like for the help and the README."""
    shown = rule.unset if default in (None, "") else str(default).lower() if default in (True, False) else default
    words = f"default {shown}" if shown != "" else "no default"
    return ", ".join(filter(None, [words, rule.unit, "one of " + " ".join(rule.choices) if rule.choices else ""]))
