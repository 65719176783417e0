"""What verbs share: the value that describes a verb, the training that a verb is about, and answers in JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from ps_train.config import fields, folders
from ps_train.runtime import logs
from ps_train.storage import run_record

# Flags each of which says which training a verb is about.
_PLACING = {"train_dir", "ps_hosts", "saved_model", "flagfile"}


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb of the command line.

    Attributes:
      usage: its lines in the help: each form of the command, and its purpose.
      run: runs it with the arguments behind the verb. Raises a PsTrainError, or an exception of the user's code.
      flags_help: returns the help text of its flags, for the arguments behind the verb.
      own_arguments: returns those of the arguments that are for ps_train; the others are for a user's script.
      has_log: whether --log_format says what its output looks like.
    """

    usage: str
    run: Callable[[Sequence[str]], object]
    flags_help: Callable[[Sequence[str]], str]
    own_arguments: Callable[[Sequence[str]], Sequence[str]] = lambda arguments: arguments
    has_log: bool = False

    @property
    def summary(self) -> str:
        """The first sentence about the first form of the command."""
        lines = itertools.takewhile(lambda line: not line.startswith("  ps_train "), self.usage.splitlines()[1:])
        return " ".join(line.strip() for line in lines).partition(". ")[0].rstrip(".")

    def asks_for_json(self, arguments: Sequence[str]) -> bool:
        """Returns whether its log is to be JSON, by flags that are not checked yet, those of a file among them."""
        words = self.own_arguments(arguments)
        typed = [word for word in words if not isinstance(word, fields.FileFlag)]
        in_two_words = [f"{name}={value}" for name, value in zip(typed, typed[1:]) if name.lstrip("-") == "log_format"]
        for group in ([*typed, *in_two_words], words):  # a flag that is typed replaces that of a file
            formats = [word.lstrip("-") for word in group if word.lstrip("-").startswith("log_format=")]
            if formats:
                return self.has_log and formats[-1] == "log_format=json"
        return False


def verb_at(place: str) -> Verb:
    """Returns the verb of a place, "module:CONSTANT"."""
    module, _, constant = place.partition(":")
    return getattr(importlib.import_module(module), constant)


def json_answer(value: Any) -> str:
    """Returns JSON that every program can read: without NaN and infinity, which become texts as in the log."""
    return json.dumps(json.loads(json.dumps(value), parse_constant=lambda name: str(float(name))))


def positional(words: Sequence[str], cls: type) -> list[int]:
    """Returns the places of the words that are neither flags of a verb nor their values; `cls` has the flags."""
    with_value = {name for name, (_, kind, _) in fields.rules(cls).items() if kind is not bool}
    return [index for index, word in enumerate(words) if not word.startswith("-") and not (
        index and words[index - 1].startswith("-") and words[index - 1].lstrip("-") in with_value)]


def reading_train_dir(
    argv: Sequence[str], cls: type, *, needs: str = ""
) -> contextlib.AbstractContextManager[list[str]]:
    """Returns a context that gives the arguments of `name_train_dir`, with a train_dir that can be read by its path.

    Args:
      cls: as for `name_train_dir`.
      needs: as for `folders.readable_words`.
    """
    return folders.readable_words(name_train_dir(argv, cls), needs)


def name_train_dir(argv: Sequence[str], cls: type) -> list[str]:
    """Returns the arguments of a verb with a --train_dir, if one is known; prints it if the user did not give it.

    Args:
      cls: the class with the verb's flags, to know whether the word behind a flag is its value.
    """
    words = list(argv)
    if places := positional(words, cls):
        train_dir = words.pop(places[0])
        return [f"--train_dir={train_dir}", *words]
    names = {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}
    if names & _PLACING or not (train_dir := run_record.newest_launch()):
        return words
    # On stderr: a program may read the answer.
    logs.complain(f"ps_train: --train_dir={train_dir}, the newest run that was launched in this folder\n")
    return [f"--train_dir={train_dir}", *words]
