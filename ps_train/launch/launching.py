"""The mark of a launch in a folder that was trained in before, `.launching.json`, until its chief starts.

Until then the folder speaks of the run before: `ps_train status`, `save` and `stop` look for the mark.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator

from ps_train.storage import folder_lock, journal, run_record

MARK_NAME = ".launching.json"  # no file of the training, so it is not uploaded to a store
REASON = "a launch begins a training in this folder"


@contextlib.contextmanager
def marked(folder: str) -> Iterator[None]:
    """Keeps the mark in a folder that has the record of a run, while its body runs; elsewhere does nothing."""
    path = os.path.join(folder, MARK_NAME)
    if not folder or not os.path.exists(os.path.join(folder, run_record.RUN_NAME)):
        yield
        return
    holder = folder_lock.lock_text(time.strftime("%Y-%m-%d %H:%M:%S %z"), "launch", 0).decode()
    # The launch itself does not need it.
    with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
        json.dump({"holder": holder, "num_starts": _num_starts(folder)}, file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)


def is_launching(folder: str) -> bool:
    """Returns whether a launch of this machine begins another run in a folder, whose chief has not started yet."""
    if not folder:
        return False
    try:
        with open(os.path.join(folder, MARK_NAME), encoding="utf-8") as file:
            mark = json.load(file)
        return (folder_lock.has_ended_here(mark["holder"].encode()) is False
                and _num_starts(folder) == mark["num_starts"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _num_starts(folder: str) -> int:
    return sum(event["event"] == "start" for event in journal.read_journal(folder))
