"""The verb `compare`: its words, which are two places of losses."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ps_train.config import flag_help
from ps_train.errors import ConfigError
from ps_train.parts.compare.flags import CompareConfig, parse_compare
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, positional

_GRACE_SECS = 1.0  # there is nothing to save


def split_places(argv: Sequence[str]) -> tuple[str, str, list[str]]:
    """Returns the two places and the flags.

    Raises:
      ConfigError: there are not two places.
    """
    places = positional(argv, CompareConfig)
    words = [argv[index] for index in places]
    if len(words) != 2:
        raise ConfigError("word_missing", "`ps_train compare` takes two folders with event files, CSV files or logs, "
                          f"such as `ps_train compare old_run new_run`; got {' '.join(words) or 'none'}")
    return words[0], words[1], [word for index, word in enumerate(argv) if index not in places]


def _compare(argv: Sequence[str]) -> None:
    before, after, flags = split_places(argv)
    config = parse_compare(flags)
    for place in (before, after):
        if not os.path.exists(place):
            raise ConfigError("input_file_missing", f"`ps_train compare`: {place} does not exist; give a folder "
                              "with event files, a CSV file or a log")
    with signals.on_signals() as stop:
        if any(map(os.path.isdir, (before, after))):
            installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
        from ps_train.parts.compare import table  # noqa: PLC0415 (it may need TensorFlow, which takes seconds)

        signals.run_until_stopped(lambda: table.print_comparison(before, after, config), stop, _GRACE_SECS)


COMPARE = Verb(
    usage="""\
  ps_train compare BEFORE AFTER [--window_steps=N]
           Compare the losses of two trainings, of event files or logs.""",
    run=_compare, flags_help=lambda _: flag_help.help_text(CompareConfig))
