"""The verb `config`: all flags of a training with their values, and where each value comes from."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ps_train.cluster.resolve import find_cluster
from ps_train.config import fields, flag_help
from ps_train.config.fields import FileFlag, Rule
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig
from ps_train.config.task import Config
from ps_train.runtime import logs
from ps_train.verbs.train import find_tf_config
from ps_train.verbs.verb import Verb

_PLAIN = re.compile(r"[\w./]([\w./:,=+@-]*[\w./-])?")  # a text that needs no quotes in YAML
_NULL = ("null", "Null", "NULL", "~")
_WIDTH = 44  # of a name and its value, before the source
_CLUSTER = ("job_name", "task_index", "ps_hosts", "worker_hosts")


def effective_lines(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Returns the lines of `ps_train config`: YAML, in which the flags that have their defaults are comments.

    Args:
      argv: the flags of `train` or `launch`, those of a file among them.
      environ: the environment variables, of which TF_CONFIG and those of a scheduler count.

    Raises:
      ConfigError: a flag is wrong; as `train` and `launch` say it.
    """
    classes = (LaunchConfig, Config)
    parsed, given = fields.parse_flags(argv, *classes, help_command="ps_train config --help")
    launch_values = {name: parsed[name] for name in fields.rules(LaunchConfig)}
    config = Config(**{name: parsed[name] for name in parsed if name not in launch_values},
                    given=given - launch_values.keys(), tf_config=environ.get("TF_CONFIG", ""))
    values = {**vars(config), **vars(LaunchConfig(**launch_values))}
    sources = {name: "command line" for name in given}
    sources.update((word.name, word.place) for word in argv if isinstance(word, FileFlag) and word.is_used)
    for name, value in _placed(config, environ).items():
        values[name], sources[name] = value
    is_task = bool(sources.keys() & PLACED_BY_LAUNCH)
    left_out = fields.rules(LaunchConfig).keys() if is_task else PLACED_BY_LAUNCH
    if not is_task and "train_dir" not in given:
        values["train_dir"] = ""
    lines, group = [], ""
    for name, (rule, _, default) in fields.rules(*classes).items():
        if name in left_out:
            continue
        lines += [f"# {rule.group}"] if rule.group != group else []
        group = rule.group
        lines.append(_line(name, values[name], default, rule, sources.get(name), is_set=name in given))
    return lines


def _placed(config: Config, environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Returns name -> (value, source) of the cluster flags, if the environment has the cluster."""
    if not (tf_config := find_tf_config(config, environ)).strip():
        return {}
    cluster = find_cluster(**{name: getattr(config, name) for name in _CLUSTER}, tf_config=tf_config,
                           given=config.given, elastic=config.elastic)
    source = "TF_CONFIG" if tf_config == config.tf_config else "the scheduler's variables"
    values = (cluster.job, cluster.index, cluster.hosts("ps"), cluster.hosts("worker"))
    return {name: (value, source) for name, value in zip(_CLUSTER, values)}


def _line(name: str, value: Any, default: Any, rule: Rule, source: str | None, is_set: bool) -> str:
    if source is None:
        source = "default" if value == default else "follows from other flags"
        source += f": {rule.unset}" if value in (None, "") and rule.unset else ""
    setting = f"{name}: {_written(value)}".rstrip()
    return f"{'' if is_set else '# '}{setting:<{_WIDTH - 2 * (not is_set)}}  # {source}"


def _written(value: Any) -> str:
    """Returns a value as YAML."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else repr(value)
    return value if _PLAIN.fullmatch(value) and value not in _NULL else json.dumps(value, ensure_ascii=False)


CONFIG = Verb(
    usage="""\
  ps_train config [flags of train or launch]
           Show every flag and its source; --config=FILE reads YAML, TOML, JSON.""",
    run=lambda argv: logs.show("\n".join(effective_lines(argv, os.environ))),
    flags_help=lambda _: flag_help.help_text(LaunchConfig, Config))
