"""The flags of a launch on other machines, the hosts that they name, the host of each task, and its ssh command.

    host1 slots=4            # a hostfile, as mpirun and horovodrun read it: one host per line
    me@host2 slots=2 address=10.0.0.2
    host1:4,me@host2:2       # the same in --hosts itself, without addresses
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.errors import ConfigError, Problem

_NAME = re.compile(r"(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.-]*", re.ASCII)
_FORM = "host, user@host, host:slots, or in a file `host slots=N address=NAME`"
CONNECT_SECS = 10
# By default sshd drops some connections while ten are being made (MaxStartups), as when the tasks of a host start
# together: they try again, each at another time.
_TASK_TRIES = 6
# Behind the user's options: ssh takes the first value of each. BatchMode: a prompt for a password would wait forever.
# ControlPath: a shared connection would outlive the launcher.
_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_SECS}", "-o", "ServerAliveInterval=5", "-o",
            "ServerAliveCountMax=3", "-o", "ControlPath=none")
# Terraform's variables begin with TF_, too, and may be secrets, which a command line would show to all users of a host.
_NOT_TENSORFLOWS = ("TF_CONFIG", "TF_CLI_", "TF_VAR_", "TF_TOKEN_", "TF_HTTP_", "TF_LOG", "TF_DATA_DIR", "TF_WORKSPACE",
                    "TF_INPUT", "TF_IN_AUTOMATION", "TF_PLUGIN_")
_HOME = re.compile(r"~[\w.-]*", re.ASCII)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_REMOTE = "Launching on other machines"


@dataclasses.dataclass(frozen=True)
class RemoteFlags:
    """The machines that run the tasks, and how to reach them."""

    hosts: str = field("", _REMOTE, "Machines for the tasks, over ssh: a file with lines `host slots=N`, or "
                       "host:slots,... (docs/ssh.md).", unset="this machine")
    task_placement: str = field("round_robin", _REMOTE, "Deal the tasks out to the hosts in turn, ps first, or fill "
                                "the slots of a host before the next.", choices=("round_robin", "fill"))
    ssh_command: str = field("ssh", _REMOTE, "How to call ssh, with its options, such as 'ssh -p 2222 -i KEY'.")
    remote_dir: str = field(
        "", _REMOTE, "Working directory on the hosts.", unit="remote path", unset="the path of this one")
    remote_python: str = field("", _REMOTE, "Python on the hosts.", unit="remote path", unset="the path of this one")
    env: str = field("", _REMOTE, "Environment variables for the tasks on the hosts, NAME or NAME=value, in addition "
                     "to PYTHONPATH and TF_*.", unset="no others")

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns a problem for each flag about other machines that has no effect without --hosts."""
        return [Problem("flag_without_effect", f"--{name}: has an effect only with --hosts; omit it, or give --hosts")
                for name, (_, _, default) in fields.rules(RemoteFlags).items()
                if getattr(config, name, default) != default and not config.hosts]


@dataclasses.dataclass(frozen=True)
class Host:
    """A machine that runs tasks.

    Attributes:
      login: the destination for ssh, such as `me@host1`.
      slots: the maximum number of tasks, or None for no limit.
      address: the name or address at which the other hosts reach its tasks.
    """

    login: str
    slots: int | None
    address: str

    def __str__(self) -> str:
        return self.login


def read_hosts(value: str, working_dir: str = "") -> list[Host]:
    """Returns the hosts of `--hosts`, a file or a list; the slots of a host that is named twice are added up.

    Args:
      working_dir: where a relative path begins; "" for the folder of this process.

    Raises:
      ConfigError: a file cannot be read, or an entry is malformed; the message has the entry.
    """
    hosts: dict[str, Host] = {}
    path = os.path.join(working_dir, os.path.expanduser(value))  # a shell leaves ~ in --hosts=~/hosts
    for place, words in _entries(value, path):
        host = _parse_host(place, words)
        known = hosts.get(host.login)
        if known is not None:
            if known.slots is None or host.slots is None:
                raise ConfigError("host_given_twice", f"{place}: {host.login} is named twice; name it once, or give "
                                  "slots each time")
            if known.address != host.address:
                raise ConfigError("host_given_twice", f"{place}: {host.login} is named twice, with the addresses "
                                  f"{known.address} and {host.address}; name it once, or give the same address=NAME "
                                  "each time")
            host = dataclasses.replace(host, slots=known.slots + host.slots)
        hosts[host.login] = host
    if not hosts:
        raise ConfigError("hosts_empty", f"--hosts: {value!r} names no host; allowed: {_FORM}")
    return list(hosts.values())


def _entries(value: str, path: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the place of each entry, for messages, and its words, `host` and `slots=N`; the value may be a path."""
    # A folder may have the name of a host, for example the folder of its results.
    if os.sep not in value and (os.path.isdir(path) or not os.path.exists(path)):
        for entry in value.split(","):
            name, colon, slots = entry.strip().partition(":")
            if ":" in slots:
                raise ConfigError("host_malformed", f"--hosts entry {entry!r}: an IPv6 address, or two colons; "
                                  f"allowed: {_FORM}, where a host is a name or an IPv4 address")
            yield f"--hosts entry {entry!r}", [name, *([f"slots={slots}"] if colon else [])]
        return
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError("hosts_unreadable", f"--hosts: cannot read {value!r}: "
                          f"{getattr(error, 'strerror', None) or error}; give a file with a host per line, or "
                          "host1:slots,host2:slots") from None
    for number, line in enumerate(lines, 1):
        if words := line.partition("#")[0].split():
            yield f"{value} line {number}", words


def _parse_host(place: str, words: Sequence[str]) -> Host:
    name, *settings = words
    values = dict(setting.partition("=")[::2] for setting in settings)
    slots, address = values.get("slots", "1"), values.get("address", name.rpartition("@")[2])
    if not _NAME.fullmatch(name):
        fault = f"{name!r}; allowed: {_FORM}"
    elif values.keys() - {"slots", "address"} or len(values) < len(settings):
        fault = f"{' '.join(settings)!r}; allowed: slots=N and address=NAME, each once"
    elif not re.fullmatch(r"[1-9][0-9]{0,5}", slots, re.ASCII):
        fault = f"slots={slots!r}; allowed: a number of tasks, at least 1"
    elif not re.fullmatch(r"[A-Za-z0-9][\w.-]*", address, re.ASCII):
        fault = f"address={address!r}; allowed: a host name or an IPv4 address"
    else:
        return Host(name, int(slots) if "slots" in values else None, address)
    raise ConfigError("host_malformed", f"{place}: got {fault}")


def place_tasks(names: Sequence[str], hosts: Sequence[Host], placement: str) -> list[Host]:
    """Returns the host of each task.

    Args:
      names: the tasks, `ps:0` and so on, in the order of their start.
      hosts: in the order of the user.
      placement: "round_robin" deals the tasks out to the hosts in turn; "fill" fills the slots of a host before the
        next host gets any task.

    Raises:
      ConfigError: there are fewer slots than tasks, "fill" meets a host without slots, or the hosts cannot reach each
        other by the addresses.
    """
    if placement == "fill" and (unlimited := [host.login for host in hosts if host.slots is None]):
        raise ConfigError("slots_missing", f"--task_placement=fill: {', '.join(unlimited)} without slots; say how many "
                          "tasks each host takes: host:slots, or slots=N in the file")
    free = {host: len(names) if host.slots is None else host.slots for host in hosts}
    if sum(free.values()) < len(names):
        raise ConfigError("too_few_slots", f"--hosts: {len(names)} tasks, but {sum(free.values())} slots on "
                          f"{len(hosts)} host{'s' * (len(hosts) > 1)}; start fewer tasks with --num_ps and "
                          "--num_workers, or give more slots")
    turn = 0
    task_hosts = []
    for _ in names:
        while not free[hosts[turn % len(hosts)]]:
            turn += 1
        host = hosts[turn % len(hosts)]
        free[host] -= 1
        task_hosts.append(host)
        turn += placement == "round_robin"
    refuse_loopback(task_hosts)
    return task_hosts


def refuse_loopback(hosts: Sequence[Host]) -> None:
    """Raises ConfigError if only some hosts are `localhost`, an address that means another machine on the others."""
    loopback = [host for host in hosts if host.address.lower() == "localhost" or host.address.startswith("127.")]
    if loopback and len(loopback) < len(hosts):
        raise ConfigError("loopback_address", f"--hosts: the other hosts would look for the tasks of {loopback[0]} at "
                          f"{loopback[0].address}, which is each of them itself; give the name that they know, or "
                          "address=NAME in a file")


@dataclasses.dataclass(frozen=True)
class RemoteShell:
    """Makes the commands that start processes on the hosts.

    Attributes:
      ssh: the words of --ssh_command.
      folder: the working directory on each host.
      python: the interpreter on each host.
      environ: the environment variables to set on each host.
    """

    ssh: Sequence[str]
    folder: str
    python: str
    environ: Mapping[str, str]

    def typed(self, words: Sequence[str]) -> str:
        """Returns the shell command that runs python with these arguments, in the folder and environment."""
        variables = [f"{name}={value}" for name, value in sorted(self.environ.items())]
        env_command = shlex.join(["env", *variables]) + " " if variables else ""
        return f"cd {_quoted(self.folder)} && {env_command}{_quoted(self.python)} {shlex.join(words)}"

    def ssh_command(self, host: Host, words: Sequence[str]) -> list[str]:
        """Returns the local command that runs python with these arguments on a host."""
        # In `sh`: the user's login shell may have other rules for quotes.
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
          port: of a task, which must be free before it starts, or 0.
          variables: of its environment, in addition to those of all processes.
        """
        watch = ["-m", "ps_train.parts.ssh.connection", "watch", name, f"{grace_secs:g}", str(port), *words]
        shell = dataclasses.replace(self, environ={**self.environ, **variables})
        num_tries = _TASK_TRIES if port else 1  # a probe is started again by preflight.py
        return [sys.executable, "-m", "ps_train.parts.ssh.connection", "relay", host.login, str(num_tries),
                *shell.ssh_command(host, watch)]


def make_remote_shell(flags: Any, working_dir: str = "") -> RemoteShell:
    """Returns the shell that the flags of `RemoteFlags` describe; raises ConfigError if one of them is wrong.

    Args:
      working_dir: that of the launch; "" for that of this process.
    """
    return RemoteShell(split_ssh_command(flags.ssh_command), flags.remote_dir or working_dir or os.getcwd(),
                       flags.remote_python or sys.executable, chosen_environment(flags.env, os.environ))


def _quoted(path: str) -> str:
    """Quotes a path for a shell, but not a leading `~`, which the shell replaces by the home folder."""
    home, slash, below = path.partition("/")
    if not _HOME.fullmatch(home):
        return shlex.quote(path)
    return f"{home}{slash}{shlex.quote(below) if below else ''}"


def chosen_environment(flag: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables to set on the hosts: PYTHONPATH, TF_* except TF_CONFIG, and those of the flag --env.

    Args:
      flag: `NAME,NAME=value,...`; a name alone takes its value from `environ`.
      environ: the environment of the launcher.

    Raises:
      ConfigError: a name is malformed, or not set here.
    """
    chosen = {name: value for name, value in environ.items()
             if name == "PYTHONPATH" or (name.startswith("TF_") and not name.startswith(_NOT_TENSORFLOWS))}
    for entry in filter(None, flag.split(",")):
        name, has_value, value = entry.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            raise ConfigError("flag_malformed", f"--env: got {entry!r}; allowed: NAME or NAME=value, separated by "
                              "commas")
        if not has_value and name not in environ:
            raise ConfigError("variable_unset", f"--env: {name} is not set here; set it, or give its value: "
                              f"--env={name}=value")
        chosen[name] = value if has_value else environ[name]
    return chosen


def split_ssh_command(command: str) -> list[str]:
    """Returns the words of --ssh_command; raises ConfigError if a quotation does not end or it has no word."""
    try:
        # ssh replaces a ~ itself in some of its options, such as -i, and not in others, such as -F.
        words, fault = [*map(os.path.expanduser, shlex.split(command))], "no command"
    except ValueError as error:
        words, fault = [], str(error)
    if not words:
        raise ConfigError("flag_malformed", f"--ssh_command: got {command!r}: {fault}; write it as in a shell, such as "
                          "'ssh -p 2222', or omit it")
    return words
