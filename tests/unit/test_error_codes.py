"""Every error of ps_train has a code, and its message keeps the rules of prose.

Tests elsewhere assert codes and values. The wording of all messages is checked here, in the table that
scripts/list_errors.py makes of the source and writes to docs/errors.md.
"""

from __future__ import annotations

import ast
import collections
import re

import pytest

from ps_train.config import fields, launch, task
from scripts import list_errors

SITES = list_errors.error_sites()
CODED = [site for site in SITES if re.fullmatch(r"[a-z0-9_]+", site.code) and site.message]
# The error repeats another one, with its code; or one of another process, which has its code in its message.
_FORWARDED = re.compile(r"\{([\w.\[\]]+\.)?code\}|")
_TICS = re.compile(r"\b(told|there is no|there are no|gone|so that|beside|whoever|whatever|of its own|in the place of|"
                   r"anew|heard of)\b")
_FLAGS = "|".join(name for name in fields.rules(task.Config, launch.LaunchConfig) if "_" in name)
_RULES = {
    "one line a problem": lambda prose: "\n" in prose,
    "no full stop at the end": lambda prose: prose.rstrip().endswith("."),
    "plain English": _TICS.search,
    "a flag has its dashes": re.compile(rf"(?<![-=\w.`/'\"])({_FLAGS})(?![\w/])").search,
}


def test_an_error_has_a_code_of_one_to_four_words():
    """A literal, or that of the error which it repeats."""
    assert [site for site in SITES if not (
        re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){0,3}", site.code) or _FORWARDED.fullmatch(site.code))] == []


def test_a_code_belongs_to_one_kind_of_exit_code():
    """A user who knows the code knows whether a restart may help: not after 1 or 2, for example."""
    of_code = collections.defaultdict(set)
    kinds = {**list_errors.exit_codes(), "Problem": "2"}
    for site in CODED:
        exit_code = kinds[site.kind]
        if exit_code != "-":  # that of another process
            of_code[site.code].add("permanent" if exit_code in ("1", "2") else exit_code)
    assert {code: sorted(exit_codes) for code, exit_codes in of_code.items() if len(exit_codes) > 1} == {}


@pytest.mark.parametrize("rule", _RULES)
def test_messages_keep_the_rules_of_prose(rule):
    """Their values, which have braces, are left out."""
    prose = {site: re.sub(r"\{[^{}]*(\{[^{}]*\}[^{}]*)*\}", "{}", site.message) for site in CODED}
    assert [site for site, text in prose.items() if _RULES[rule](text)] == []


@pytest.mark.parametrize(("source", "text"), [
    ('f"port {port_of(self._address)} of {task!r}" + "; end"', "port {port_of} of {task}; end"),
    ('f"{len(tasks)} tasks: {\', \'.join(sorted(names)) or \'none\'}, {hosts[0]}, {a if b else None}"',
     "{tasks} tasks: {names}, {hosts}, {a}"),
    ('f"{getattr(error, \'strerror\', None)}, {getattr(flags, flag)}, {line.strip()}, {given.get(\'name\')}"',
     "{error}, {value}, {line}, {name}"),
])
def test_a_value_is_the_last_name_of_its_expression(source, text):
    """Not the expression, which would not help a reader of the page."""
    assert list_errors.template(ast.parse(source, mode="eval").body) == text


def test_the_page_lists_all_errors():
    """`python scripts/list_errors.py` writes it."""
    page = list_errors.REPO / "docs/errors.md"
    if not page.exists():
        pytest.skip("docs/errors.md is generated when all errors have codes")
    assert page.read_text(encoding="utf-8") == list_errors.page()
