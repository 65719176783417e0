"""The flags of `ps_train publish`."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.parts.inference.flags import CheckpointFlags
from ps_train.parts.object_store.flags import check_location, protocol_of

_TARGET = re.compile(r"[^/:]+:\d+/[^/]+")
_field = functools.partial(fields.field, group="Publishing")


def split_targets(name: str, text: str) -> list[str]:
    """Returns the words of --targets.

    Raises:
      ConfigError: one is neither HOST:PORT/MODEL nor the URL of a folder in a store, or comes twice.
    """
    targets = [target.strip() for target in text.split(",")] if text else []
    for target in targets:
        if protocol_of(target):
            check_location(name, target)
        elif not _TARGET.fullmatch(target):
            raise ConfigError("flag_malformed", f"{name}: got {target!r}; allowed: HOST:PORT/MODEL, with the gRPC port "
                              "of a server, as in localhost:8500/clicks, and URLs of a store, as s3://bucket/clicks")
    if len(set(targets)) < len(targets):
        raise ConfigError("flag_malformed", f"{name}: got {text!r}, with a target twice; give each once")
    return targets


@dataclasses.dataclass(frozen=True)
class PublishConfig(CheckpointFlags):
    """What is published, where, and how often; raises ConfigError with a line for each wrong or missing flag."""

    publish_dir: str = _field("", help="Folder for the pushes and the versions of the model.", unit="path",
                              unset="none; required")
    publish_secs: float = _field(2.0, help="Time between two pushes.", unit="seconds", minimum=0.1, maximum=86400)
    targets: str = _field("", help="Servers of the live model, and folders in stores, which get each push, too.",
                          unit="HOST:PORT/MODEL or URL,...", unset="none: they follow the folder", form=split_targets)
    target_timeout_secs: float = _field(10.0, help="Time for a call of a target, and for all of them at the end.",
                                        unit="seconds", minimum=0.1, maximum=3600)
    once: bool = _field(False, help="Publish what is new, and end.")

    def __post_init__(self) -> None:
        problems = self._common_problems("publish", "train_dir")
        if not self.publish_dir:
            problems.append(Problem("flag_missing", "--publish_dir: not given; it is the folder for the pushes"))
        if "://" in self.train_dir:
            problems.append(Problem("path_is_url", f"--train_dir: got {self.train_dir!r}; allowed: a folder that this "
                                    "machine and the chief share"))
        if self.checkpoint:
            problems.append(Problem("flags_conflict", "--checkpoint: given, but the newest is published; leave it out"))
        refuse(problems)


def parse_publish(argv: Sequence[str]) -> PublishConfig:
    """Returns the flags of a command line; raises ConfigError if they are wrong."""
    values, given = fields.parse_flags(argv, PublishConfig, others=[Config], help_command="ps_train publish --help")
    return PublishConfig(**values, given=given)
