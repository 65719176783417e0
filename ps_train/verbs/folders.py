"""Which training a verb is about: the folder of its first word, of --train_dir, or the newest run launched here."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.runtime import logs
from ps_train.storage import run_record

# Flags that say by themselves what a verb is about.
_OTHERS = {"train_dir", "ps_hosts", "saved_model", "flagfile"}


def name_train_dir(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a verb with a --train_dir, if one is known; says which, where none was given."""
    if argv and not argv[0].startswith("-"):
        return [f"--train_dir={argv[0]}", *argv[1:]]
    names = {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}
    if names & _OTHERS or not (train_dir := run_record.newest_launch()):
        return list(argv)
    # Not among the lines of the answer, which a program may read.
    logs.complain(f"ps_train: --train_dir={train_dir}, the newest run that was launched here\n")
    return [f"--train_dir={train_dir}", *argv]
