"""The verb `rows`: its words, which are a table, ids and a folder."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence

from ps_train.config import fields, flag_help
from ps_train.errors import ConfigError
from ps_train.parts.rows.flags import RowsConfig
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, positional, reading_train_dir

_GRACE_SECS = 1.0  # there is nothing to save
_HELP = "ps_train rows --help"
_NEGATIVE = re.compile(r"-\d+")


@dataclasses.dataclass(frozen=True)
class RowsWords:
    """The words of a command line, sorted.

    Attributes:
      table: the name of the table.
      ids: as they were typed.
      flags: the flags, with --train_dir if a folder was among the words.
    """

    table: str
    ids: tuple[str, ...]
    flags: tuple[str, ...]


def split_words(argv: Sequence[str]) -> RowsWords:
    """Returns the words of `TABLE ID... [DIR]` and the flags.

    The last word is the folder if it is one, or has a "/" in it, and --train_dir is not given.

    Raises:
      ConfigError: no table is given, or neither an id nor --since.
    """
    plain = {index for index, word in enumerate(argv) if _NEGATIVE.fullmatch(word)} | {*positional(argv, RowsConfig)}
    words = [argv[index] for index in sorted(plain)]
    flags = [word for index, word in enumerate(argv) if index not in plain]
    names = {word.lstrip("-").partition("=")[0] for word in flags}
    is_folder = len(words) > 1 and "train_dir" not in names and ("/" in words[-1] or os.path.isdir(words[-1]))
    if is_folder and not _NEGATIVE.fullmatch(words[-1]):
        flags.insert(0, f"--train_dir={words.pop()}")
    if not words:
        raise ConfigError("word_missing", "`ps_train rows` takes the name of a table and ids, such as `ps_train rows "
                          "items 17 42 /jobs/7`; got no table")
    if len(words) == 1 and "since" not in names:
        raise ConfigError("word_missing", f"`ps_train rows {words[0]}`: got no id; give ids, as in `ps_train rows "
                          f"{words[0]} 17 42`, or --since=STEP for the rows that moved most")
    return RowsWords(words[0], tuple(words[1:]), tuple(flags))


def parse_rows(argv: Sequence[str]) -> RowsConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    values, _ = fields.parse_flags(argv, RowsConfig, help_command=_HELP)
    return RowsConfig(**values)


def _rows(argv: Sequence[str]) -> None:
    words = split_words(argv)
    with reading_train_dir(words.flags, RowsConfig, needs="checkpoint") as flags, signals.on_signals() as stop:
        config = parse_rows(flags)
        installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.rows import looking  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

        signals.run_until_stopped(lambda: looking.print_rows(config, words.table, words.ids), stop, _GRACE_SECS)


ROWS = Verb(
    usage="""\
  ps_train rows TABLE ID... [DIR] [--since=STEP]
           Show rows of a table in a checkpoint, and those that moved most.""",
    run=_rows, flags_help=lambda _: flag_help.help_text(RowsConfig))
