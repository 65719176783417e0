"""The flags of `ps_train run` and `ps_train launch run`, which stand before the script."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.fields import field
from ps_train.config.groups import GraphReportFlags, WaitFlags
from ps_train.config.launch import LaunchConfig
from ps_train.errors import ConfigError, refuse
from ps_train.parts.ssh.hosts import RemoteFlags
from ps_train.runtime.waits import Timeouts

_SCRIPT = "Running a script"
# hdfs://x/date=2020=/local: the = that separates the paths has a path behind it.
_PAIR = re.compile(r"(.+?)=((?:/|\.|~|[a-z0-9]+://).*)")
_MODES = ("auto", "1", "2")


def parse_mapped(flag: str, value: str) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of FROM=TO,...; none for "".

    Raises:
      ConfigError: the value has another form; the error names the flag.
    """
    pairs = []
    for item in filter(None, (item.strip() for item in value.split(","))):
        match = _PAIR.fullmatch(item) or re.fullmatch(r"(.+)=([^=]+)", item)
        if not match:
            raise ConfigError("flag_malformed", f"{flag}: got {item!r}; allowed: PATH=PATH, as in "
                              "hdfs://x/y=/local/z")
        pairs.append((match[1], match[2]))
    return tuple(pairs)


@dataclasses.dataclass(frozen=True)
class ScriptConfig:
    """The flags of `ps_train run`."""

    tf_mode: str = field(
        "auto", _SCRIPT, "TensorFlow 1 names and graphs, or TensorFlow 2 as it is; auto looks into the script.",
        choices=_MODES)
    reference_variables: bool = field(
        False, _SCRIPT, "Use TensorFlow 1's reference variables, for code that fails with resource variables.")
    python2: bool = field(
        False, _SCRIPT, "The script and its local modules are Python 2: run a converted copy; the files stay.")
    map_path: str = field(
        "", _SCRIPT, "Paths that are written into the script or its local modules, and their replacements.",
        unit="PATH=PATH,...", form=parse_mapped, unset="none")
    tf_log: bool = field(False, _SCRIPT, "Show the start-up messages of TensorFlow.")
    start_timeout_secs: float = fields.redeclare(WaitFlags, "start_timeout_secs")
    step_timeout_secs: float = fields.redeclare(
        WaitFlags, "step_timeout_secs", help="Time for one step of an Estimator that several workers train under a "
        "tf.distribute strategy; after that the task exits with 138.")
    beat_timeout_secs: float = fields.redeclare(WaitFlags, "beat_timeout_secs")
    idle_timeout_secs: float = fields.redeclare(GraphReportFlags, "idle_timeout_secs")
    stop_timeout_secs: float = fields.redeclare(
        WaitFlags, "stop_timeout_secs", help="Time after SIGTERM: the script has half of it to end, then the chief "
        "saves.")

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), ScriptConfig))

    @property
    def timeouts(self) -> Timeouts:
        """The bounds of the task's waits."""
        return Timeouts(start_secs=self.start_timeout_secs, step_secs=self.step_timeout_secs,
                        heartbeat_secs=self.beat_timeout_secs, idle_secs=self.idle_timeout_secs,
                        stop_secs=self.stop_timeout_secs)


@dataclasses.dataclass(frozen=True)
class ScriptLaunchConfig(ScriptConfig, RemoteFlags):
    """The flags of `ps_train launch run`, in addition to those of `ps_train run`."""

    num_ps: int = field(1, _SCRIPT, "Parameter servers to start.", minimum=0)
    num_workers: int = field(2, _SCRIPT, "Workers to start, including the chief.", minimum=1)
    chief_job: str = field(
        "worker", _SCRIPT, "The job of the first worker: an Estimator needs chief or master.",
        choices=("worker", "chief", "master"))
    evaluator: bool = field(False, _SCRIPT, "Start an evaluator, too.")
    hosts_flags: str = field(
        "", _SCRIPT, "The script's own names for the flags ps_hosts, worker_hosts, job_name, task_index, chief_hosts.",
        unit="ps_hosts=NAME,...", unset="those of the script that have these names, or similar ones")
    max_restarts: int = field(
        0, _SCRIPT, "How often to restart each task that was lost or killed.", unit="restarts", minimum=0)
    log_dir: str = field(
        "", _SCRIPT, "Folder for the tasks' log files.", unit="path", unset="a new one in TMPDIR or /tmp")
    base_port: int = fields.redeclare(LaunchConfig, "base_port", group=_SCRIPT)

    def __post_init__(self) -> None:
        refuse(fields.problems(vars(self), ScriptLaunchConfig) + self.part_problems(self))


@dataclasses.dataclass(frozen=True)
class Script:
    """The file or module to run.

    Attributes:
      name: the path of the file, or the dotted name of the module.
      is_module: whether it is a module (`-m`).
      arguments: those of the script.
    """

    name: str
    is_module: bool
    arguments: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The script and its arguments, as on a command line."""
        return [*(["-m"] if self.is_module else []), self.name, *self.arguments]


def before_script(argv: Sequence[str], flags_class: type) -> list[str]:
    """Returns the words of ps_train, all of them without a script: those behind the script are the script's own.

    Args:
      flags_class: the class of the flags; a word behind `--name` is the value of that flag, unless it is a boolean.
    """
    with_value = {name for name, (_, kind, _) in fields.rules(flags_class).items() if kind is not bool}
    position = 0
    while position < len(argv) and argv[position].startswith("-") and argv[position] != "-m":
        position += 2 if argv[position].lstrip("-") in with_value else 1
    return list(argv[:position])


def split_script(argv: Sequence[str], verb: str, flags_class: type) -> tuple[list[str], Script]:
    """Returns the flags of ps_train, which stand before the script, and the script with its arguments.

    Raises:
      ConfigError: the command line has no script.
    """
    ours = before_script(argv, flags_class)
    words = argv[len(ours):]
    is_module = words[:1] == ["-m"]
    if len(words) <= is_module:
        raise ConfigError("script_missing", f"ps_train {verb}: no script given; allowed: ps_train {verb} [flags of "
                          "ps_train] script.py [its flags], or -m module instead of the file")
    return ours, Script(words[is_module], is_module, tuple(words[is_module + 1:]))
