"""What a verb says about flags: their help, and which of those that were given are another verb's."""

from __future__ import annotations

import textwrap
from collections.abc import Collection
from typing import Any

from ps_train.config import fields
from ps_train.errors import Problem

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
