"""Flags as TensorFlow 1 had them, with absl: `tf.app.flags` began empty, and took any default."""

from __future__ import annotations

import functools
import operator
import sys
from typing import Any, Callable

from absl import flags


def restore_flags() -> None:
    """Changes absl's flags for this process. Call it once."""
    # TF1's flags began empty; absl has some of its own, such as --log_dir and --v, which scripts define too.
    for name in flags.FLAGS:
        flags.FLAGS[name].allow_override = True
    # Before 1.5 scripts parsed the flags themselves by this private name.
    if not hasattr(flags.FlagValues, "_parse_flags"):
        flags.FlagValues._parse_flags = _parse_flags  # noqa: SLF001
    flags.Flag._set_default = _takes_any_default(flags.Flag._set_default)  # noqa: SLF001 (it has no public name)


def _parse_flags(self: flags.FlagValues, args: list[str] | None = None) -> None:
    if not self.is_parsed():
        self(sys.argv if args is None else [sys.argv[0], *args], known_only=True)


def _takes_any_default(function: Callable) -> Callable:
    """Returns a method that keeps a default that the flag's parser refuses, as argparse did before 1.5."""
    @functools.wraps(function)
    def set_default(self: flags.Flag, value: Any) -> None:
        try:
            function(self, value)
        except (flags.IllegalFlagValueError, AttributeError, TypeError):  # a list's parser calls methods of a text
            self.default = _as_int(value) if isinstance(self.parser, flags.IntegerParser) else value
            self.default_as_str = repr(str(self.default))
            if self.using_default_value:
                self.value = self.default
    return set_default


def _as_int(value: Any) -> Any:
    """Returns the int that numpy's integers and floats such as 1e6 stand for; any other value as it is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    try:
        return operator.index(value)
    except TypeError:
        return value
