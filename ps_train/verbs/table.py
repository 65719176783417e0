"""The names of the verbs, and the module that defines each."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.parts import table as parts
from ps_train.verbs.verb import Verb, verb_at

# A module is imported only when its verb is used.
_PLACES = {
    "train": "ps_train.verbs.train:TRAIN",
    "launch": "ps_train.verbs.launch:LAUNCH",
    "serve": "ps_train.verbs.train:SERVE",
    "new": "ps_train.verbs.new:NEW",
    **{verb: f"{parts.module_of(row, 'verb')}:{verb.upper()}" for row in parts.TABLE for verb in row.verbs},
}
NAMES = tuple(_PLACES)

# The flags that `ps_train --help` names: those that nearly every training gives.
_COMMON = ("job_name", "task_index", "ps_hosts", "worker_hosts", "train_dir", "model", "dataset", "data_dir",
           "train_steps")
_WIDTH = 80  # of a terminal
_TITLE = "Parameter-server training for TensorFlow 1 graph code, one process per task."
_SCREEN = """\
{title}
Usage: ps_train [VERB] [--flag=value ...]     (the default verb is train)
{verbs}
Common flags:
{flags}

`ps_train VERB --help` shows a verb and its flags, `--help_all` everything.
{notes}"""
_NOTES = """\
TF_CONFIG replaces the cluster flags; --config=FILE reads flags from a file.
"""
_EXIT_CODES = """\
Exit codes: 0 done, 1 a fault in your code or data, 2 bad configuration,
138 the cluster was lost (run the same command again), 143 stopped on request."""


def split_argv(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the name of the verb, which is `train` by default, and the arguments behind it.

    Raises:
      ConfigError: the verb does not exist.
    """
    if not argv or argv[0].startswith("-"):
        return "train", list(argv)
    if argv[0] not in _PLACES:
        near = difflib.get_close_matches(argv[0], NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError("verb_unknown", f"unknown verb {argv[0]!r}; {hint}allowed: {', '.join(NAMES)}")
    return argv[0], list(argv[1:])


def find_verb(name: str) -> Verb:
    """Returns the verb of a name of NAMES."""
    return verb_at(_PLACES[name])


def help_of(name: str, arguments: Sequence[str]) -> str:
    """Returns the output of `ps_train NAME --help`: the verb, its flags, and where to read more."""
    verb = find_verb(name)
    return f"Usage:\n{verb.usage}\n{verb.flags_help(arguments)}\n\n`ps_train --help` lists the verbs.\n{_EXIT_CODES}"


def help_screen() -> str:
    """Returns the output of `ps_train --help`: each verb and the common flags in a line, for one screen."""
    verbs = [_in_a_line(f"  {name:<9} {find_verb(name).summary}") for name in NAMES]
    known = fields.rules(Config)
    helps = {name: known[name][0].help.partition(". ")[0].partition(";")[0].rstrip(".") for name in _COMMON}
    flags = [_in_a_line(f"  --{name:<20} {text}") for name, text in helps.items()]
    return _SCREEN.format(title=_TITLE, verbs="\n".join(verbs), flags="\n".join(flags), notes=_NOTES + _EXIT_CODES)


def _in_a_line(text: str) -> str:
    """Returns a line that fits a terminal, without its last clauses where it is too long."""
    while len(text) > _WIDTH and "," in text:
        text = text.rpartition(",")[0]
    return text


def help_all(arguments: Sequence[str]) -> str:
    """Returns the output of `ps_train --help_all`: the usage of each verb, and the flags of a task."""
    usages = "\n".join(find_verb(name).usage for name in NAMES)
    return f"{_TITLE}\n\nUsage:\n{usages}\n\n{_NOTES}{_EXIT_CODES}\n{find_verb('train').flags_help(arguments)}"
