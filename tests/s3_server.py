"""An S3 server in the test's process, moto's, which can hold uploads back."""

from __future__ import annotations

import contextlib
import pathlib
import threading
from collections.abc import Iterator

import pytest

from tests.processes import free_ports

moto_server = pytest.importorskip("moto.server", reason="moto[server] is not installed")
boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
BUCKET = "trained"
SECRET = "AbCdEf0123456789"


class SlowS3:
    """moto's server, which answers no upload of an object with `held` in its name while it is not open.

    Attributes:
      is_open: whether it answers these, too.
      reached: is set when it holds the first one back.
    """

    def __init__(self, held: str) -> None:
        self.is_open, self.reached = threading.Event(), threading.Event()
        self.is_open.set()
        [self._port] = free_ports(1)
        self._held = held
        self.start()
        self.url = f"http://localhost:{self._port}"
        self.client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1",
                                   aws_access_key_id="testing", aws_secret_access_key=SECRET)
        self.client.create_bucket(Bucket=BUCKET)
        for name in self.names():  # of an earlier test: all servers of a process have the same buckets
            self.client.delete_object(Bucket=BUCKET, Key=name)

    def start(self) -> None:
        """Begins to answer, with the objects that were there when it was stopped."""
        self.server = moto_server.ThreadedMotoServer(port=self._port, verbose=False)
        self.server.start()
        application = self.server._server.app

        def hold(environ, start_response):
            if environ["REQUEST_METHOD"] == "PUT" and self._held in environ["PATH_INFO"] and not self.is_open.is_set():
                self.reached.set()
                self.is_open.wait(60)
            return application(environ, start_response)

        self.server._server.app = hold

    def stop(self) -> None:
        """Refuses connections."""
        self.server.stop()

    def names(self) -> set[str]:
        """Returns the keys of all objects."""
        return {found["Key"] for found in self.client.list_objects_v2(Bucket=BUCKET).get("Contents", [])}


@contextlib.contextmanager
def serving_s3(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, held: str) -> Iterator[SlowS3]:
    """Yields a server which this process and those that it starts find, with credentials, in their environment."""
    server = SlowS3(held)
    for name, value in {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "testing",
                        "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
                        "TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    try:
        yield server
    finally:
        server.is_open.set()
        server.stop()
