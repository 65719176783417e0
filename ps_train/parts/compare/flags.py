"""The flags of `ps_train compare`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.errors import ConfigError, refuse

_field = functools.partial(fields.field, group="The comparison")


def parse_pattern(flag: str, text: str) -> re.Pattern | None:
    """Returns a pattern with the groups `step` and `loss`, None for ""; raises ConfigError for another form."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}, which is no regular expression: {error}") from None
    if text and not {"step", "loss"} <= pattern.groupindex.keys():
        raise ConfigError("flag_malformed", f"{flag}: got {text!r}; allowed: a regular expression with the groups "
                          "(?P<step>...) and (?P<loss>...)")
    return pattern if text else None


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """How losses are read and compared; raises ConfigError if a value is not allowed."""

    tag: str = _field("", help="The tag of the loss in event files, or its column in a CSV file.",
                      unset="loss, or the only one that ends so")
    pattern: str = _field(
        "", help="How a line of a log has the step and the loss: a regular expression with the groups step and loss.",
        form=parse_pattern, unset="'step' and 'loss', each before its number")
    window_steps: int = _field(
        1, help="Compare means over so many steps; for trainings that log at different steps.", unit="steps", minimum=1)
    relative_tolerance: float = _field(
        0.05, help="How far the loss after may be from the loss before, as a part of that one.", minimum=0)
    absolute_tolerance: float = _field(0.0, help="How much more it may differ, whatever the loss is.", minimum=0)
    max_rows: int = _field(20, help="The most rows of the table; the largest difference is always among them.",
                           minimum=2)
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), type(self)))


def parse_compare(argv: Sequence[str]) -> CompareConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    values, _ = fields.parse_flags(argv, CompareConfig, help_command="ps_train compare --help")
    return CompareConfig(**values)
