"""Real ssh servers for tests: own keys, ports and configuration in a folder of the test; nothing in /etc is used."""

from __future__ import annotations

import getpass
import os
import pathlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence

import pytest

DEADLINE_SECS = 30.0
_TOOLS = ("sshd", "ssh", "ssh-keygen")


def _find(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/usr/local/sbin")


def require() -> None:
    """Skips the test, with the reason, where OpenSSH's server or client is not installed."""
    missing = [tool for tool in _TOOLS if _find(tool) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)} (Debian: openssh-server)")


class SshServers:
    """Some servers that let this user in with one key.

    Attributes:
      command: the value of --ssh_command.
    """

    def __init__(self, folder: pathlib.Path, port: int) -> None:
        self.folder, self.port = folder, port
        folder.mkdir()
        for name in ("host_key", "user_key", "wrong_key"):
            subprocess.run([_find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        os.chmod(folder / "authorized_keys", 0o600)
        self.command = self.with_key("user_key")
        self._servers: list[subprocess.Popen] = []

    def with_key(self, name: str) -> str:
        """Returns the ssh command that uses a key of the folder."""
        key = self.folder / name
        return shlex.join(["ssh", "-F", "none", "-p", str(self.port), "-l", getpass.getuser(), "-i", str(key), "-o",
                           "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={self.folder / 'known_hosts'}", "-o",
                           "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"])

    def start(self, address: str, before: Sequence[str] = ()) -> None:
        """Starts a server on an address; `before` are the words in front of its command."""
        config = self.folder / f"sshd-{address}"
        config.write_text("\n".join([
            f"ListenAddress {address}", f"Port {self.port}", f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.folder / 'authorized_keys'}", f"PidFile {config}.pid", "UsePAM no",
            "StrictModes no", "PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin yes",
            "MaxStartups 100", ""]))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # where sshd drops its rights to, if root has started it
        log = open(f"{config}.log", "wb")  # noqa: SIM115 (the server's)
        server = subprocess.Popen([*before, _find("sshd"), "-D", "-e", "-f", config], stdin=subprocess.DEVNULL,
                                  stdout=log, stderr=log)
        log.close()
        self._servers.append(server)
        end_secs = time.monotonic() + DEADLINE_SECS
        while "listening" not in pathlib.Path(f"{config}.log").read_text():
            assert server.poll() is None and time.monotonic() < end_secs, pathlib.Path(f"{config}.log").read_text()
            time.sleep(0.05)

    def __enter__(self) -> SshServers:
        return self

    def __exit__(self, *exc_info) -> None:
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.wait(DEADLINE_SECS)
