"""The log of a process, and its standard streams: text, or with --log_format=json a JSON object on each line.

    {"time": "2026-03-01T12:00:00.250Z", "level": "info", "task": "worker:0", "step": 100, "message": "step 100 of ..."}

An error also has its `code`, an exception its `traceback`. Results are on stdout, all else on stderr, in both forms.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable

_JSON_BEGINNING = '{"time": "'
_names: dict[str, str] = {}  # folder -> how the user knows it


class _JsonFormatter(logging.Formatter):
    """Makes a JSON object of each record; a record may have more values in its attribute `fields`.

    Attributes:
      task: the name of this process in the cluster, "" while it is unknown.
      find_step: returns the global step, 0 or None while it is unknown.
    """

    converter = time.gmtime  # type: ignore[assignment]

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task
        self.find_step: Callable[[], int | None] = lambda: None

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(), "task": self.task or None, "step": self.find_step() or None}
        if not record.name.startswith("ps_train"):
            values["logger"] = record.name
        values["message"] = record.getMessage()
        if record.exc_info and record.exc_info[0]:
            values["traceback"] = self.formatException(record.exc_info)
        values.update(getattr(record, "fields", {}))
        known = {name: value for name, value in values.items() if value is not None}
        return json.dumps(_finite(known), ensure_ascii=False, default=lambda value: (  # such as a number of numpy
            _finite(float(value)) if hasattr(value, "__float__") else str(value)))


_json: list[_JsonFormatter] = []  # that of this process, if its log is JSON


def _finite(value: Any) -> Any:
    """Returns a value without NaN and infinity, which JSON lacks: as texts."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def show(text: str, **fields: Any) -> bool:
    """Prints a result, as JSON with these fields; returns false if a full disk or a closed pipe has lost the text."""
    with contextlib.suppress(OSError):
        line = f"{with_names(json_line(text, **fields) if _json else text)}\n"
        encoding = sys.stdout.encoding or "utf-8"  # it may lack a character, and the name of a file may be no text
        # In one call, and so in one piece: print writes the end of the line in a second one.
        sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
        return True
    return False


def complain(text: str) -> None:
    """Writes lines to stderr; ignores a full disk, as the exit code still reports the error."""
    text = f"{json_line(text.rstrip(), level='warning')}\n" if _json and not text.startswith(_JSON_BEGINNING) else text
    with contextlib.suppress(OSError):
        sys.stderr.write(with_names(text))
        sys.stderr.flush()


@contextlib.contextmanager
def naming(folder: str, name: str) -> Iterator[None]:
    """Lets results, errors and the log show a name in place of a folder, while its body runs."""
    _names[folder] = name
    try:
        yield
    finally:
        del _names[folder]


def with_names(text: str) -> str:
    """Returns a text with the names of `naming`."""
    for folder, name in _names.items():
        text = text.replace(folder, name)
    return text


class _Handler(logging.StreamHandler):
    def format(self, record: logging.LogRecord) -> str:
        return with_names(super().format(record))


def setup() -> None:
    """Sends ps_train's log to stderr, each line with the time of day."""
    _json.clear()
    _send_ps_train_to_stderr(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))


def setup_json(task: str = "") -> None:
    """Sends ps_train's log to stderr as JSON, and also Python's warnings and the logs of TensorFlow, absl and others.

    Args:
      task: the name of this process in the cluster; it may be given later, by another call.
    """
    _json[:] = [_JsonFormatter(task)]
    handler = _send_ps_train_to_stderr(_json[0])
    # If TensorFlow is imported later, it sees that there is a handler, and adds none of its own.
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger("tensorflow").handlers.clear()
    logging.captureWarnings(True)
    threading.excepthook = _log_thread


def _send_ps_train_to_stderr(formatter: logging.Formatter) -> logging.Handler:
    handler = _Handler(sys.stderr)
    handler.setFormatter(formatter)
    logger = logging.getLogger("ps_train")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and failed.exc_type is not SystemExit:
        logging.getLogger("ps_train").error(
            "the thread %s failed: %s", failed.thread.name if failed.thread else "?", failed.exc_value,
            exc_info=(failed.exc_type, failed.exc_value, failed.exc_traceback))


def is_json() -> bool:
    """Returns whether the log of this process is JSON."""
    return bool(_json)


def find_step_with(find_step: Callable[[], int | None]) -> None:
    """Adds the global step to each later line of JSON."""
    for formatter in _json:
        formatter.find_step = find_step


def json_line(message: str, *, level: str = "info", task: str = "", **fields: Any) -> str:
    """Returns a line of JSON, without its line break.

    Args:
      task: the name of the process whose line it is; "" for this one.
      fields: further values.
    """
    formatter = _JsonFormatter(task) if task or not _json else _json[0]
    return formatter.format(logging.makeLogRecord({
        "name": "ps_train", "levelname": level, "msg": message, "fields": fields}))


def is_json_line(line: str) -> bool:
    """Returns whether a line of a log is one of JSON."""
    return line.startswith(_JSON_BEGINNING)


def readable_bytes(num_bytes: int) -> str:
    """Returns a size in powers of 1000 with three digits, such as `318 kB`."""
    size, units = float(num_bytes), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and units[1:]:
        size, units = size / 1000, units[1:]
    return f"{size:.3g} {units[0]}"
