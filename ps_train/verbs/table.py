"""The names of the verbs, and the module that defines each."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence

from ps_train.errors import ConfigError
from ps_train.verbs.verb import Verb

# In the order of `ps_train --help`. A module is imported only when its verb is used.
_PLACES = {
    "train": "ps_train.verbs.train:TRAIN",
    "launch": "ps_train.verbs.launch:LAUNCH",
    "serve": "ps_train.verbs.train:SERVE",
    "keras": "ps_train.verbs.keras:KERAS",
    "run": "ps_train.verbs.scripts:RUN",
    "evaluate": "ps_train.verbs.checkpoints:EVALUATE",
    "predict": "ps_train.verbs.checkpoints:PREDICT",
    "export": "ps_train.verbs.checkpoints:EXPORT",
    "status": "ps_train.verbs.control:STATUS",
    "save": "ps_train.verbs.control:SAVE",
    "stop": "ps_train.verbs.control:STOP",
    "resume": "ps_train.verbs.control:RESUME",
    "report": "ps_train.verbs.control:REPORT",
    "new": "ps_train.verbs.new:NEW",
    "plan": "ps_train.verbs.before:PLAN",
    "doctor": "ps_train.verbs.before:DOCTOR",
    "convert": "ps_train.verbs.keras:CONVERT",
}
NAMES = tuple(_PLACES)

_USAGE = """\
Parameter-server training for TensorFlow 1 graph code, one process per task.

Usage (the default verb is train):
{verbs}

If TF_CONFIG is set, it replaces the four cluster flags.
--flagfile=FILE reads further flags from a file, one per line.
Exit codes: 0 done, 1 a fault in your code or data, 2 bad configuration,
138 the cluster was lost (run the same command again), 143 told to stop."""


def split_argv(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Returns the name of the verb, which is `train` by default, and the arguments behind it.

    Raises:
      ConfigError: there is no such verb.
    """
    if not argv or argv[0].startswith("-"):
        return "train", list(argv)
    if argv[0] not in _PLACES:
        near = difflib.get_close_matches(argv[0], NAMES, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown verb {argv[0]!r}; {hint}allowed: {', '.join(NAMES)}")
    return argv[0], list(argv[1:])


def find_verb(name: str) -> Verb:
    """Returns the verb of a name of NAMES."""
    module, _, constant = _PLACES[name].partition(":")
    return getattr(importlib.import_module(module), constant)


def usage() -> str:
    """Returns the commands and exit codes, as `ps_train --help` shows them."""
    return _USAGE.format(verbs="\n".join(find_verb(name).usage for name in NAMES))
