"""The verbs that watch and control a running training, `status`, `save`, `stop` and `resume`, and their flags."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Sequence
from typing import Any, Callable

from ps_train.cluster.addresses import parse_hosts
from ps_train.config import fields, flag_help
from ps_train.errors import Problem, refuse
from ps_train.runtime import installed, signals
from ps_train.verbs.verb import Verb, reading_train_dir

_GRACE_SECS = 1.0  # there is nothing to save
_field = functools.partial(fields.field, group="Watching and controlling")


@dataclasses.dataclass(frozen=True)
class ControlConfig:
    """Where the training is; raises ConfigError if values are not allowed or missing."""

    train_dir: str = _field("", help="Folder of the training.", unit="path", unset="none")
    ps_hosts: str = _field("", help="Addresses of its parameter servers, where the folder cannot be reached.",
                           unit="host:port,...", unset="those in the folder",
                           form=lambda name, hosts: hosts and parse_hosts(name, hosts))
    timeout_secs: float = _field(60.0, help="Wait this long for the answer.", unit="seconds", minimum=0.1)
    tf_log: bool = _field(False, help="Show the start-up messages of TensorFlow.")

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), type(self))
        if not self.train_dir and not self.ps_hosts:
            problems.append(Problem("flag_missing", "--train_dir: not given; give the folder of the training, or "
                                                    "--ps_hosts"))
        refuse(problems)


@dataclasses.dataclass(frozen=True)
class StatusConfig(ControlConfig):
    """The flags of `ps_train status`; raises as `ControlConfig` does."""

    json: bool = _field(False, help="Print one line of JSON.")
    watch: bool = _field(False, help="Print the status again and again, until Ctrl-C.")
    watch_secs: float = _field(2.0, help="Time between two looks with --watch.", unit="seconds", minimum=0.1)


def parse_control(argv: Sequence[str], verb: str, cls: type = ControlConfig) -> Any:
    """Returns the flags of a command line, a `cls`; raises ConfigError if it is wrong."""
    values, _ = fields.parse_flags(argv, cls, help_command=f"ps_train {verb} --help")
    return cls(**values)


def _verb(
    name: str, purpose: str, run: Callable[[Any, Any, threading.Event], None], cls: type = ControlConfig
) -> Verb:
    """Returns a verb that calls `run` with the module `asking`, its flags, and an event that a signal sets."""

    def run_verb(argv: Sequence[str]) -> None:
        with reading_train_dir(argv, cls) as words, signals.on_signals() as stop:
            config = parse_control(words, name, cls)
            installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
            from ps_train.parts.control import asking  # noqa: PLC0415 (a wrong flag does not wait for TensorFlow)

            signals.run_until_stopped(lambda: run(asking, config, stop), stop, _GRACE_SECS)

    return Verb(usage=f"  ps_train {name} {purpose}", run=run_verb, flags_help=lambda _: flag_help.help_text(cls))


STATUS = _verb("status", """[DIR] [--watch] [--json]
           Show how far a training is, and which of its tasks are alive. Without
           DIR it is the newest run that was launched here.""",
               lambda asking, config, stop: asking.print_status(config, stop), StatusConfig)
SAVE = _verb("save", """[DIR]
           Let a running training save a checkpoint now.""",
             lambda asking, config, stop: asking.save_now(config, stop))
STOP = _verb("stop", """[DIR]
           Let all tasks of a running training save and end.""",
             lambda asking, config, stop: asking.stop_all(config, stop))
RESUME = _verb("resume", """[DIR]
           Print the command that continues a training.""",
               lambda asking, config, stop: asking.print_resume(config))
