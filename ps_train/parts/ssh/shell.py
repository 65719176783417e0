"""The command line of ssh for a process on a host, and the words that the host's shell runs."""

from __future__ import annotations

import dataclasses
import re
import shlex
import sys
import types
from collections.abc import Mapping, Sequence

from ps_train.errors import ConfigError
from ps_train.parts.ssh.hosts import Host

SILENCE_SECS = 15.0  # without a sign of life from the other end, both ends take the connection for broken
CONNECT_SECS = 10
# Behind the user's own options: ssh takes the first value of each. BatchMode: a prompt for a password would wait for
# ever. ControlPath: a shared connection would outlive the launcher.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECS}", "-o", "ServerAliveInterval=5", "-o",
            "ServerAliveCountMax=3", "-o", "ControlPath=none")
# Terraform's variables begin with TF_, too, and may be secrets, which a command line would show to all users of a host.
_NOT_TENSORFLOWS = ("TF_CONFIG", "TF_CLI_", "TF_VAR_", "TF_TOKEN_", "TF_HTTP_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE",
                    "TF_INPUT", "TF_IN_AUTOMATION", "TF_PLUGIN_")
_HOME = re.compile(r"~[\w.-]*", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class RemoteShell:
    """How processes are started on the hosts.

    Attributes:
      ssh: the words of --ssh_command.
      folder: the working directory on each host.
      python: the interpreter on each host.
      environ: the variables that are set there.
    """

    ssh: Sequence[str]
    folder: str
    python: str
    environ: Mapping[str, str]

    def typed(self, words: Sequence[str]) -> str:
        """Returns the text for a POSIX shell that runs python with these arguments, in the folder and environment."""
        variables = [f"{name}={value}" for name, value in sorted(self.environ.items())]
        before = shlex.join(["env", *variables]) + " " if variables else ""
        return f"cd {_quoted(self.folder)} && {before}{_quoted(self.python)} {shlex.join(words)}"

    def ssh_command(self, host: Host, words: Sequence[str]) -> list[str]:
        """Returns the local command that runs python with these arguments on a host."""
        # In `sh`, because the user's login shell there may read the words in another way.
        return [*self.ssh, *_OPTIONS, host.login, f"exec sh -c {shlex.quote(self.typed(words))}"]

    def relay_command(
        self, host: Host, name: str, words: Sequence[str], grace_secs: float, port: int = 0,
        variables: Mapping[str, str] = types.MappingProxyType({}),
    ) -> list[str]:
        """Returns the local command that runs a watched process on a host.

        Args:
          name: of the process, in messages.
          words: the arguments of its python.
          grace_secs: how long it may take to end after SIGTERM when the connection is broken.
          port: the one that must be free before it starts, or 0.
          variables: of its environment, beside those of all processes.
        """
        watcher = ["-m", "ps_train.parts.ssh.watcher", name, f"{grace_secs:g}", str(port), *words]
        shell = dataclasses.replace(self, environ={**self.environ, **variables})
        return [sys.executable, "-m", "ps_train.parts.ssh.relay", host.login, *shell.ssh_command(host, watcher)]


def _quoted(path: str) -> str:
    """Returns a path as a word for a shell; a `~` in front stays outside the quotes, where it is the home folder."""
    home, slash, rest = path.partition("/")
    return f"{home}{slash}{shlex.quote(rest)}" if slash and _HOME.fullmatch(home) else shlex.quote(path)


def chosen_environment(flag: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to set on the hosts: PYTHONPATH, TF_* except TF_CONFIG, and those of the flag --env.

    Args:
      flag: `NAME,NAME=value,...`; a name alone takes its value from `environ`.
      environ: the launcher's own environment.

    Raises:
      ConfigError: a name that is none, or that is not set here.
    """
    found = {name: value for name, value in environ.items()
             if name == "PYTHONPATH" or (name.startswith("TF_") and not name.startswith(_NOT_TENSORFLOWS))}
    for entry in filter(None, flag.split(",")):
        name, has_value, value = entry.partition("=")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--env: got {entry!r}; allowed: NAME or NAME=value, with commas between them")
        if not has_value and name not in environ:
            raise ConfigError(f"--env: {name} is not set here; set it, or give its value: --env={name}=value")
        found[name] = value if has_value else environ[name]
    return found


def split_ssh_command(text: str) -> list[str]:
    """Returns the words of --ssh_command.

    Raises:
      ConfigError: a quotation that does not end, or no word.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--ssh_command: got {text!r}: {error}; write it as in a shell, such as 'ssh -p 2222'"
                          ) from None
    if not words:
        raise ConfigError("--ssh_command: empty; give it as in a shell, such as 'ssh -p 2222', or leave it out")
    return words
