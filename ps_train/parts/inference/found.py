"""Finds the checkpoint that the user means."""

from __future__ import annotations

import os

from ps_train.errors import ConfigError
from ps_train.storage import checkpoints

BEST = "best"  # the folder in the train_dir with the checkpoint that --keep_best and --early_stopping keep
_MOST_LISTED = 8


def find_checkpoint(train_dir: str, wanted: str) -> str:
    """Returns the path prefix of a checkpoint.

    Args:
      train_dir: the folder of the checkpoints.
      wanted: a global step, a path, `best`, or "" for the newest sound one.

    Raises:
      ConfigError: there is none; the error lists those that are there.
    """
    if wanted == BEST:
        train_dir, wanted = os.path.join(train_dir, BEST), ""
    if not os.path.isdir(train_dir):
        needs = ", which must have --keep_best or --early_stopping" if os.path.basename(train_dir) == BEST else ""
        raise ConfigError(f"--train_dir: there is no folder {train_dir!r}; give the --train_dir of the training{needs}")
    if not wanted:
        path = checkpoints.newest_sound(train_dir)
        if path is None:
            raise ConfigError(f"--train_dir: there is no checkpoint in {train_dir!r}")
        return path
    if wanted.isdigit():
        candidates = [checkpoints.path_of(train_dir, int(wanted))]
    else:
        prefix = wanted.removesuffix(".index").removesuffix(".meta")
        candidates = [prefix, os.path.join(train_dir, prefix)]
    path = next((path for path in candidates if checkpoints.exists(path)), None)
    if path is None:
        known = [os.path.basename(path).rpartition("-")[2] for path in checkpoints.paths(train_dir)]
        shown = ", ".join(known[-_MOST_LISTED:]) or "no checkpoint"
        raise ConfigError(f"--checkpoint: got {wanted!r}; {train_dir} has {shown}; give one of these, or a path")
    checkpoints.verify(path)
    return path
