"""Downloads of one file, from a real server on this machine."""

from __future__ import annotations

import errno
import hashlib
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from data.fetch import fetch
from ps_train.errors import DataError

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
DEADLINE_SECS = 60
CONTENT = os.urandom(3 << 20)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ADVICE = "do something else"


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT as /file, and half of it as /half; `gate` holds the answers back."""

    daemon_threads = True
    num_requests = 0
    gate: threading.Barrier | None = None

    def url(self, name):
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.num_requests += 1
        if self.server.gate:
            self.server.gate.wait(DEADLINE_SECS)
        if self.path not in ("/file", "/half"):
            self.send_error(404, "Not Here")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT if self.path == "/file" else CONTENT[: len(CONTENT) // 2])

    def log_message(self, *arguments):
        """Keeps the tests' output clean."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join(DEADLINE_SECS)


def _error(*arguments, **options):
    with pytest.raises(DataError) as caught:
        fetch(*arguments, ADVICE, **options)
    message = str(caught.value)
    assert "\n" not in message and message.endswith(ADVICE)
    return message


def test_file_arrives_whole(server, tmp_path):
    """The bytes are there, in a folder that did not exist, and nothing else is."""
    path = tmp_path / "new" / "folder" / "file"
    fetch(server.url("file"), path, SHA256, ADVICE)
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_file_can_be_read_by_others(server, tmp_path):
    """The file has the permissions of any new file, not the private ones of a temporary one."""
    plain = tmp_path / "plain"
    plain.touch()
    fetch(server.url("file"), tmp_path / "file", SHA256, ADVICE)
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode


def test_wrong_bytes(server, tmp_path):
    """Other bytes than expected are not kept, and what was there before is."""
    path = tmp_path / "file"
    path.write_bytes(b"before")
    message = _error(server.url("file"), path, "0" * 64)
    assert server.url("file") in message and SHA256 in message and "0" * 64 in message
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_connection_cut_off_halfway(server, tmp_path):
    """Half a file is no file."""
    assert server.url("half") in _error(server.url("half"), tmp_path / "file", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_http_error(server, tmp_path):
    """The message of an HTTP error has its number."""
    message = _error(server.url("absent"), tmp_path / "file", SHA256)
    assert server.url("absent") in message and "HTTP 404 Not Here" in message
    assert list(tmp_path.iterdir()) == []


def test_server_that_never_answers(tmp_path, monkeypatch):
    """A server that accepts and is silent is given up after the timeout."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file"
        message = _error(url, tmp_path / "file", SHA256, timeout_secs=0.2)
    assert url in message and "no answer within 0.2 s" in message
    assert list(tmp_path.iterdir()) == []


def test_nobody_listens(tmp_path, monkeypatch):
    """The message says that the connection was refused."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/file"
    assert "refused" in _error(url, tmp_path / "file", SHA256)


def test_folder_that_cannot_be_made(server, tmp_path):
    """A file in place of the folder is an error before anything is downloaded."""
    (tmp_path / "taken").touch()
    path = tmp_path / "taken" / "file"
    message = _error(server.url("file"), path, SHA256)
    assert f"{path}: cannot be written" in message
    assert server.num_requests == 0


def test_full_disk(server, tmp_path, monkeypatch):
    """When the disk is full the part that was written goes away."""
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = _error(server.url("file"), tmp_path / "file", SHA256)
    assert "cannot be written (No space left on device)" in message
    assert list(tmp_path.iterdir()) == []


def test_many_threads_at_once(server, tmp_path):
    """Eight downloads that overlap, as the gate sees to, leave one whole file."""
    path = tmp_path / "file"
    server.gate = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: fetch(server.url("file"), path, SHA256, ADVICE), range(8)))
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]


def test_two_processes_at_once(server, tmp_path):
    """So do two processes; both succeed."""
    path = tmp_path / "file"
    server.gate = threading.Barrier(2)
    program = (
        "import pathlib, sys; from data.fetch import fetch; "
        "fetch(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], '')"
    )
    command = [sys.executable, "-c", program, server.url("file"), str(path), SHA256]
    processes = [subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
                 for _ in range(2)]
    try:
        errors = [process.communicate(timeout=DEADLINE_SECS)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]
