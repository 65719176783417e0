"""The value that describes a verb of the command line."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Callable, Sequence


def _all(arguments: Sequence[str]) -> Sequence[str]:
    return arguments


@dataclasses.dataclass(frozen=True)
class Verb:
    """A verb.

    Attributes:
      usage: its lines in the help: each form of the command, and its purpose.
      run: runs it with the arguments behind the verb. Raises a PsTrainError, or an exception of the user's code.
      flags_help: returns the help text of its flags, for the arguments behind the verb.
      own_arguments: returns those of the arguments that are for ps_train; the others are for a user's script.
    """

    usage: str
    run: Callable[[Sequence[str]], None]
    flags_help: Callable[[Sequence[str]], str]
    own_arguments: Callable[[Sequence[str]], Sequence[str]] = _all

    @property
    def summary(self) -> str:
        """The first sentence about the first form of the command."""
        lines = itertools.takewhile(lambda line: not line.startswith("  ps_train "), self.usage.splitlines()[1:])
        return " ".join(line.strip() for line in lines).partition(". ")[0].rstrip(".")


def verb_at(place: str) -> Verb:
    """Returns the verb of a place, "module:CONSTANT"."""
    module, _, constant = place.partition(":")
    return getattr(importlib.import_module(module), constant)
