"""Deltas: what has changed since a checkpoint, in a file beside it.

    model.ckpt-1000.index  .data-...                the checkpoint at step 1000: all rows of the embedding tables
    model.ckpt-1000.delta-1200.index  .data-...     the variables at step 1200, and the rows changed since step 1000

Each delta has everything that has changed since its checkpoint, so only the newest sound one is needed. Whoever removes
a checkpoint removes its deltas too, because their names begin with its name.
"""

from __future__ import annotations

import os
import re

from ps_train.storage import checkpoints

_INDEX = re.compile(r"(.+\.delta-(\d+))\.index")


def delta_path(path: str, step: int) -> str:
    """Returns the path prefix of the delta to the checkpoint `path` at a global step."""
    return f"{path}.delta-{step}"


def deltas_of(path: str) -> list[str]:
    """Returns the path prefixes of all deltas to a checkpoint, sound or not, in the order of their steps."""
    folder, basename = os.path.split(path)
    names = os.listdir(folder or ".") if os.path.isdir(folder or ".") else []
    found = [match for match in map(_INDEX.fullmatch, names) if match and match[1].startswith(basename + ".delta-")]
    return [os.path.join(folder, match[1]) for match in sorted(found, key=lambda match: int(match[2]))]


def newest_sound_delta(path: str) -> str | None:
    """Returns the newest delta to a checkpoint that can be read, or None; warns of each one that cannot."""
    return next((delta for delta in reversed(deltas_of(path)) if checkpoints.is_sound(delta)), None)


def remove_older_deltas(path: str, keep: int) -> None:
    """Removes all deltas to a checkpoint but the newest ones."""
    for delta in deltas_of(path)[:-keep]:
        checkpoints.remove(delta)
