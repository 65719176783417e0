"""The hosts of a launch: reads `--hosts`, decides which task runs where, and makes the command line of ssh for each.

    host1 slots=4            # a hostfile, as mpirun and horovodrun read it: one host per line
    me@host2 slots=2 address=10.0.0.2
    host1:4,me@host2:2       # the same in the flag itself, without addresses
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import types
from collections.abc import Iterator, Mapping, Sequence

from ps_train.errors import ConfigError

_NAME = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_FORM = "host, user@host, host:slots, or in a file `host slots=N address=NAME`"
SILENCE_SECS = 15.0  # without a sign of life from the other end, both ends take the connection for broken
CONNECT_SECS = 10
# Behind the user's options: ssh takes the first value of each. BatchMode: a prompt for a password would wait forever.
# ControlPath: a shared connection would outlive the launcher.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECS}", "-o", "ServerAliveInterval=5", "-o",
            "ServerAliveCountMax=3", "-o", "ControlPath=none")
# Terraform's variables begin with TF_, too, and may be secrets, which a command line would show to all users of a host.
_NOT_TENSORFLOWS = ("TF_CONFIG", "TF_CLI_", "TF_VAR_", "TF_TOKEN_", "TF_HTTP_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE",
                    "TF_INPUT", "TF_IN_AUTOMATION", "TF_PLUGIN_")
_HOME = re.compile(r"~[\w.-]*", re.ASCII)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine that runs tasks.

    Attributes:
      login: the host as ssh takes it, such as `me@host1`.
      slots: the most tasks that it takes, or None for any number.
      address: the name or address at which the other hosts reach its tasks.
    """

    login: str
    slots: int | None
    address: str

    def __str__(self) -> str:
        return self.login


def read_hosts(value: str) -> list[Host]:
    """Returns the hosts that `--hosts` names, a file or a list; a host named twice with slots has the sum of them.

    Raises:
      ConfigError: a file that cannot be read, or an entry of another form; the error names the entry.
    """
    hosts: dict[str, Host] = {}
    for where, words in _entries(value):
        host = _parse_host(where, words)
        known = hosts.get(host.login)
        if known is not None:
            if known.slots is None or host.slots is None:
                raise ConfigError(f"{where}: {host.login} is named twice; name it once, or give slots each time")
            if known.address != host.address:
                raise ConfigError(f"{where}: {host.login} is named twice, with the addresses {known.address} and "
                                  f"{host.address}; name it once, or give the same address=NAME each time")
            host = dataclasses.replace(host, slots=known.slots + host.slots)
        hosts[host.login] = host
    if not hosts:
        raise ConfigError(f"--hosts: {value!r} names no host; allowed: {_FORM}")
    return list(hosts.values())


def _entries(value: str) -> Iterator[tuple[str, list[str]]]:
    """Yields where an entry stands, and its words, `host` and `slots=N`."""
    # A folder may have the name of a host, such as that of its results.
    if os.sep not in value and (os.path.isdir(value) or not os.path.exists(value)):
        for entry in value.split(","):
            name, colon, slots = entry.strip().partition(":")
            if ":" in slots:
                raise ConfigError(f"--hosts entry {entry!r}: an IPv6 address, or two colons; allowed: {_FORM}, where "
                                  "a host is a name or an IPv4 address")
            yield f"--hosts entry {entry!r}", [name, *([f"slots={slots}"] if colon else [])]
        return
    try:
        with open(value, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--hosts: cannot read {value!r}: {getattr(error, 'strerror', None) or error}; give a file "
                          "with a host per line, or host1:slots,host2:slots") from None
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            yield f"{value} line {number}", words


def _parse_host(where: str, words: Sequence[str]) -> Host:
    name, *settings = words
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: got {name!r}; allowed: {_FORM}")
    values = dict(setting.partition("=")[::2] for setting in settings)
    unknown = values.keys() - {"slots", "address"}
    if unknown or len(values) < len(settings):
        raise ConfigError(f"{where}: got {' '.join(settings)!r}; allowed: slots=N and address=NAME, each once")
    slots = values.get("slots", "1")
    if not re.fullmatch(r"[1-9][0-9]{0,5}", slots, re.ASCII):
        raise ConfigError(f"{where}: got slots={slots!r}; allowed: a number of tasks, at least 1")
    address = values.get("address", name.rpartition("@")[2])
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", address, re.ASCII):
        raise ConfigError(f"{where}: got address={address!r}; allowed: a host name or an IPv4 address")
    return Host(name, int(slots) if "slots" in values else None, address)


def place_tasks(names: Sequence[str], hosts: Sequence[Host], placement: str) -> list[Host]:
    """Returns the host of each task.

    Args:
      names: the tasks, `ps:0` and so on, in the order of their start.
      hosts: in the order of the user.
      placement: "round_robin" deals the tasks out to the hosts in turn; "fill" gives a host as many tasks as it has
        slots before the next one gets any.

    Raises:
      ConfigError: there are fewer slots than tasks, "fill" meets a host without slots, or the hosts cannot reach each
        other by the addresses.
    """
    if placement == "fill" and (unlimited := [host.login for host in hosts if host.slots is None]):
        raise ConfigError(f"--task_placement=fill: {', '.join(unlimited)} without slots; say how many tasks each host "
                          "takes: host:slots, or slots=N in the file")
    if all(host.slots is not None for host in hosts) and sum(host.slots or 0 for host in hosts) < len(names):
        raise ConfigError(f"--hosts: {len(names)} tasks, but {sum(host.slots or 0 for host in hosts)} slots on "
                          f"{len(hosts)} host{'s' * (len(hosts) > 1)}; start fewer tasks with --num_ps and "
                          "--num_workers, or give more slots")
    free = {host: len(names) if host.slots is None else host.slots for host in hosts}
    turn = 0
    placed = []
    for _ in names:
        while not free[hosts[turn % len(hosts)]]:
            turn += 1
        host = hosts[turn % len(hosts)]
        free[host] -= 1
        placed.append(host)
        turn += placement == "round_robin"
    refuse_loopback(placed)
    return placed


def refuse_loopback(hosts: Sequence[Host]) -> None:
    """Raises ConfigError if only some hosts are `localhost`, where each of the others would look on itself."""
    loopback = [host for host in hosts if host.address.lower() == "localhost" or host.address.startswith("127.")]
    if loopback and len(loopback) < len(hosts):
        raise ConfigError(f"--hosts: the other hosts would look for the tasks of {loopback[0]} at "
                          f"{loopback[0].address}, which is each of them itself; give the name that they know, or "
                          "address=NAME in a file")


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
        """Returns the shell command that runs python with these arguments, in the folder and environment."""
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
          variables: of its environment, in addition to those of all processes.
        """
        watcher = ["-m", "ps_train.parts.ssh.watcher", name, f"{grace_secs:g}", str(port), *words]
        shell = dataclasses.replace(self, environ={**self.environ, **variables})
        return [sys.executable, "-m", "ps_train.parts.ssh.relay", host.login, *shell.ssh_command(host, watcher)]


def _quoted(path: str) -> str:
    """Returns a path as a word for a shell; a `~` in front stays outside the quotes, where it is the home folder."""
    home, slash, below = path.partition("/")
    return f"{home}{slash}{shlex.quote(below)}" if slash and _HOME.fullmatch(home) else shlex.quote(path)


def chosen_environment(flag: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to set on the hosts: PYTHONPATH, TF_* except TF_CONFIG, and those of the flag --env.

    Args:
      flag: `NAME,NAME=value,...`; a name alone takes its value from `environ`.
      environ: the environment of the launcher.

    Raises:
      ConfigError: a name that is none, or that is not set here.
    """
    chosen = {name: value for name, value in environ.items()
             if name == "PYTHONPATH" or (name.startswith("TF_") and not name.startswith(_NOT_TENSORFLOWS))}
    for entry in filter(None, flag.split(",")):
        name, has_value, value = entry.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise ConfigError(f"--env: got {entry!r}; allowed: NAME or NAME=value, with commas between them")
        if not has_value and name not in environ:
            raise ConfigError(f"--env: {name} is not set here; set it, or give its value: --env={name}=value")
        chosen[name] = value if has_value else environ[name]
    return chosen


def split_ssh_command(command: str) -> list[str]:
    """Returns the words of --ssh_command.

    Raises:
      ConfigError: a quotation that does not end, or no word.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--ssh_command: got {command!r}: {error}; write it as in a shell, such as 'ssh -p 2222'"
                          ) from None
    if not words:
        raise ConfigError("--ssh_command: empty; give it as in a shell, such as 'ssh -p 2222', or leave it out")
    return words
