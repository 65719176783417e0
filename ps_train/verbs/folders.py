"""Which training a verb is about: the folder in its words or in --train_dir, or the newest run launched here."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.runtime import logs
from ps_train.storage import run_record

# Flags that determine by themselves which training a verb is about.
_OTHERS = {"train_dir", "ps_hosts", "saved_model", "flagfile"}


def name_train_dir(argv: Sequence[str], cls: type) -> list[str]:
    """Returns the arguments of a verb with a --train_dir, if one is known; prints the one that it has chosen.

    Args:
      cls: the class with the verb's flags, to know whether the word behind a flag is its value.
    """
    words = list(argv)
    with_value = {name for name, (_, kind, _) in fields.rules(cls).items() if kind is not bool}
    free = [index for index, word in enumerate(words) if not word.startswith("-") and not (
        index and words[index - 1].startswith("-") and words[index - 1].lstrip("-") in with_value)]
    if free:
        train_dir = words.pop(free[0])
        return [f"--train_dir={train_dir}", *words]
    names = {word.lstrip("-").partition("=")[0] for word in argv if word.startswith("-")}
    if names & _OTHERS or not (train_dir := run_record.newest_launch()):
        return words
    # On stderr: a program may read the answer.
    logs.complain(f"ps_train: --train_dir={train_dir}, the newest run that was launched here\n")
    return [f"--train_dir={train_dir}", *words]
