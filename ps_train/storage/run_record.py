"""Reads and writes `cluster.json` and `launch.json` in a train_dir: where its training runs, and how to continue it.

    {"ps": {"0": "host:port", ...}, "workers": {"0": ["worker:0", "host:port"], ...}, "command": ["--model=..."], ...}
    {"folder": "/home/me/work", "command": ["launch", "--num_ps=1", ...]}

The chief writes the first when it starts, for `ps_train status --train_dir=...` to find the cluster; launch the second.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import tempfile
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError

RUN_NAME, LAUNCH_NAME = "cluster.json", "launch.json"
_log = logging.getLogger(__name__)


def write_run(train_dir: str, run: Mapping[str, Any]) -> None:
    """Writes the chief's record; only warns if that fails."""
    _write(os.path.join(train_dir, RUN_NAME), run)


def write_launch(train_dir: str, command: Sequence[str], *, folder: str = "") -> None:
    """Writes the command line of a launch, without `python -m ps_train`; only warns if that fails.

    Args:
      folder: the working directory of the launch; "" for that of this process.
    """
    folder = folder or os.getcwd()
    _write(os.path.join(folder, train_dir, LAUNCH_NAME), {"folder": folder, "command": list(command)})
    try:
        note = _note_of(folder)
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(os.path.abspath(os.path.join(folder, train_dir)), encoding="utf-8")
    except (OSError, ValueError) as error:  # only a verb without --train_dir needs it, and asks for one
        _log.debug("cannot note the newest launch: %s", error)  # a ValueError: a name that is not UTF-8


def newest_launch() -> str:
    """Returns the train_dir of the newest run that `ps_train launch` made in the working directory, or "".

    The folder must confirm that it was launched here; a note about another run is ignored.
    """
    try:
        train_dir = _note_of(os.getcwd()).read_text(encoding="utf-8")
        return train_dir if read_launch(train_dir)["folder"] == os.getcwd() else ""
    except (OSError, ValueError, ConfigError):
        return ""


def _note_of(folder: str) -> pathlib.Path:
    """Returns the file, among those of this user, that names the newest run that was launched in a folder."""
    state = os.path.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    if not os.path.isabs(state):  # HOME is not set, and this user has no entry in /etc/passwd
        state = os.path.join(tempfile.gettempdir(), f"ps_train-{os.getuid()}")
    return pathlib.Path(state) / "ps_train" / "launches" / hashlib.sha256(folder.encode()).hexdigest()[:16]


def read_run(train_dir: str) -> Mapping[str, Any]:
    """Returns the chief's record.

    Raises:
      ConfigError: the file does not exist, or cannot be read.
    """
    return _read(train_dir, RUN_NAME, needed={"ps", "is_elastic", "train_dir", "is_launched", "folder", "command"})


def read_launch(train_dir: str) -> Mapping[str, Any]:
    """Returns the record of `ps_train launch`; raises as `read_run` does."""
    return _read(train_dir, LAUNCH_NAME, needed={"folder", "command"})


def _write(path: str, record: Mapping[str, Any]) -> None:
    """Writes a file as a whole or not at all."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)  # with --log_dir, the chief would make it later
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(f"{path}.new", path)
    except OSError as error:
        _log.warning("cannot write %s: %s; `ps_train status` and `ps_train resume` will miss it", path, error.strerror)


def _read(train_dir: str, name: str, needed: Collection[str]) -> Mapping[str, Any]:
    path = os.path.join(train_dir, name)
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        if not isinstance(record, dict) or not record.keys() >= set(needed):
            raise ValueError("it is not a file that ps_train has written")
        return record
    except FileNotFoundError:
        raise ConfigError("no_training_in_folder", f"--train_dir: no training has run in {train_dir} ({name} is "
                          "missing); give its folder, or --ps_hosts") from None
    except (OSError, ValueError) as error:
        raise ConfigError("run_record_unreadable",
                          f"--train_dir: cannot read {path}: {error}; give --ps_hosts") from None
