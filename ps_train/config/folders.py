"""The folders that flags name, as a verb or a launcher sees them on its machine, before a task begins."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ps_train.config.groups import default_train_dir
from ps_train.errors import Problem, refuse
from ps_train.parts import table

_MAX_URL_NAME = 60  # characters of a URL in the name of a folder


def check_data_dir(config: Any, working_dir: str = "") -> None:
    """Checks the folder of the data on the machine that reads it, before TensorFlow is imported.

    Args:
      config: has `data_dir` and `given`. A download creates the default folder, and with --download_only
        also one that the user names.
      working_dir: where a relative path begins; "" for the folder of this process.

    Raises:
      ConfigError: --data_dir was given and does not exist, or is empty.
    """
    # A preparation of the launcher has --download_only and --job_name, but the user asked for no download.
    is_download = getattr(config, "download_only", False) and "job_name" not in config.given
    if "data_dir" in config.given and not (is_download and config.data_dir) and (
            problem := problem_of_data_dir(config.data_dir, working_dir)):
        refuse([problem])


def problem_of_data_dir(data_dir: str, working_dir: str = "") -> Problem | None:
    """Returns the problem if a folder of data that was set does not exist on this machine."""
    path = os.path.join(working_dir, os.path.expanduser(data_dir))
    if "://" in data_dir or data_dir and os.path.exists(path):
        return None
    return Problem("data_dir_missing", f"--data_dir: got {data_dir!r}, which does not exist (working directory "
                   f"{working_dir or os.getcwd()}); give the folder with the dataset's files, or create one for a "
                   "dataset that downloads them")


@contextlib.contextmanager
def readable_words(
    words: Sequence[str], needs: str, flag: str = "--train_dir", stop: threading.Event | None = None
) -> Iterator[list[str]]:
    """Yields the arguments of a verb that reads a train_dir: with a folder on this machine, for as long as it runs.

    Args:
      needs: what it reads besides small files: "checkpoint", "curves" for event files, or "".
      flag: which flag has the folder, for errors; among the arguments it is --train_dir.
      stop: ends waits in a task; a verb has none.

    Raises:
      PsTrainError: the train_dir cannot be read.
    """
    with contextlib.ExitStack() as stack:
        for row in table.TABLE:
            if row.read:
                words = stack.enter_context(table.attribute_of(row, *row.read.split(":"))(words, needs, flag, stop))
        yield list(words)


def local_folder(train_dir: str) -> str:
    """Returns the folder on this machine of a train_dir: itself, or that in which a task with a URL works."""
    if "://" not in train_dir:
        return train_dir
    url = train_dir.rstrip("/")
    name = re.sub(r"[^\w.-]+", "-", url)[-_MAX_URL_NAME:]
    return os.path.join(default_train_dir("stores"), f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}")
