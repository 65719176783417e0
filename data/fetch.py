"""Downloads one file and checks its sha256. A reader never sees a partial file.

    URL --> .NAME.<random>.part in the same folder --sha256, fsync--> os.replace --> NAME

Several processes may fetch the same file at once without a lock: each writes its own temporary file, and each
replacement puts the same, checked bytes in place. A lock would save some downloads, but it can be left behind, and
fcntl locks do not work on every network file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ps_train.errors import MissingDataError

TIMEOUT_SECS = 10.0
_CHUNK_BYTES = 1 << 20


def fetch(
    url: str, path: Path, sha256: str, advice: str, timeout_secs: float = TIMEOUT_SECS
) -> None:
    """Downloads `url` to `path`, whose folder is created if it does not exist.

    Args:
        url: the address of the file.
        path: the destination; an existing file is replaced.
        sha256: the hexadecimal digest that the bytes must have.
        advice: what the user can do if this fails; the end of the error's text.
        timeout_secs: the maximum wait for the connection, or for the server to send something.

    Raises:
        MissingDataError: no answer, an HTTP error, unexpected bytes, or a folder that cannot be written.
    """
    with _writing(path, advice) as file:
        digest = _download(url, file, advice, timeout_secs)
        if digest != sha256:
            raise MissingDataError("wrong_digest", f"{url}: sha256 is {digest}, expected {sha256}", advice)


def _download(url: str, file: BinaryIO, advice: str, timeout_secs: float) -> str:
    """Copies the server's response to `file`, and returns its sha256."""
    digest = hashlib.sha256()
    for chunk in _chunks(url, advice, timeout_secs):
        digest.update(chunk)
        file.write(chunk)
    return digest.hexdigest()


def _chunks(url: str, advice: str, timeout_secs: float) -> Iterator[bytes]:
    """Yields the server's response; raises MissingDataError if the server fails."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_secs) as response:
            yield from iter(lambda: response.read(_CHUNK_BYTES), b"")
    except (OSError, http.client.HTTPException) as error:
        reason = _reason(error, timeout_secs)
        raise MissingDataError("download_failed", f"{url}: cannot be downloaded ({reason})", advice) from error


def _reason(error: Exception, timeout_secs: float) -> str:
    """Describes the error: urllib wraps the actual one."""
    if isinstance(error, urllib.error.HTTPError):
        return f"HTTP {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, (TimeoutError, socket.timeout)):  # two different classes before Python 3.10
        return f"no answer within {timeout_secs:g} s"
    text = getattr(cause, "strerror", None) or str(cause)
    return " ".join(text.split()) or type(cause).__name__


@contextlib.contextmanager
def _writing(path: Path, advice: str) -> Iterator[BinaryIO]:
    """Opens a temporary file that becomes `path` when the block ends, or is removed if the block fails."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise MissingDataError(
            "data_not_writable",
            f"{path}: cannot be written ({error.strerror or error})",
            f"choose a folder that can be written, or {advice}",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
