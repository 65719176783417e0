"""What a verb does with flags: their help, which of those that were given are another verb's, what parts add."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from ps_train.config import fields
from ps_train.errors import Problem
from ps_train.parts import table

_WIDTH = 80


def foreign(given: Collection[str], verb: str, cls: type) -> list[Problem]:
    """Returns a problem for each given flag that does not belong to the verb with this class of flags."""
    return [Problem("flag_of_another_verb", f"--{name}: has no effect in `ps_train {verb}`; leave it out")
            for name in sorted({*given} - {*fields.rules(cls)})]


def help_text(*classes: type, omit: Collection[str] = ()) -> str:
    """Returns the flags in groups, each with its unit and default, for 80 columns; leaves out those in `omit`."""
    lines: list[str] = []
    group = None
    for name, (rule, _, default) in fields.rules(*classes).items():
        if name in omit:
            continue
        if rule.group != group:
            group = rule.group
            lines += ["", f"{group}:"]
        description = f"{rule.help} ({describe_default(rule, default)})"
        lines += textwrap.wrap(description, _WIDTH, initial_indent=f"  --{name:<22} ", subsequent_indent=" " * 27,
                               break_on_hyphens=False)
    return "\n".join(lines)


def describe_default(rule: fields.Rule, default: Any) -> str:
    """Returns `examples; default 100` and the like, for the help and docs/flags.md."""
    values = rule.unit or ", ".join(rule.choices)
    if default in (None, ""):
        shown = rule.unset
    elif isinstance(default, bool):
        shown = str(default).lower()
    else:
        shown = f"{default:g}" if isinstance(default, float) else str(default)
    return f"{values}; default {shown}" if values else f"default {shown}"


@contextlib.contextmanager
def completed_words(arguments: Sequence[str], own: Sequence[str]) -> Iterator[list[str]]:
    """Yields the arguments of a verb with what parts add to them, for as long as it runs.

    Args:
      arguments: the words behind the verb.
      own: those that are for ps_train; further ones are a script's.

    Raises:
      ConfigError: a part cannot find what it is to add.
    """
    words = list(arguments)
    with contextlib.ExitStack() as stack:
        for row in table.TABLE:
            if row.words:
                words = stack.enter_context(table.attribute_of(row, *row.words.split(":"))(words, own))
        yield words
