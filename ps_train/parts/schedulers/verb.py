"""The verb `tf_config`: prints the cluster that a scheduler has set, for a program that finds it in TF_CONFIG.

    TF_CONFIG=$(ps_train tf_config --cluster_from=slurm --cluster_tasks=ps:1) ps_train run script.py
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence

from ps_train.cluster.tf_config import parse_tf_config
from ps_train.config import fields, flag_help
from ps_train.errors import ConfigError, refuse
from ps_train.parts.schedulers.flags import SOURCES, SchedulerFlags
from ps_train.parts.schedulers.sources import scheduled_cluster
from ps_train.verbs.verb import Verb


@dataclasses.dataclass(frozen=True)
class PlaceConfig(SchedulerFlags):
    """The flags that place a task, without those of a training; raises ConfigError with a line for each wrong one.

    A strategy of Keras or a script may have no ps.

    Attributes:
      given: the names of the flags on the command line.
      elastic: as --elastic, which this verb lacks.
    """

    _needs_ps = False

    given: frozenset[str] = frozenset()
    elastic: bool = False

    def __post_init__(self) -> None:
        problems = fields.problems(vars(self), type(self)) or self.part_problems(self)
        refuse(problems)
        if self.cluster_from is None:
            raise ConfigError("flag_missing", f"--cluster_from: not given; allowed: {', '.join(SOURCES)}")


def _print(argv: Sequence[str]) -> None:
    values, given = fields.parse_flags(argv, PlaceConfig, help_command="ps_train tf_config --help")
    text = scheduled_cluster(PlaceConfig(**values, given=given), os.environ)
    parse_tf_config(text, needs_ps=False)  # refuses a cluster that no verb would take
    print(text)


TF_CONFIG = Verb(
    usage="""\
  ps_train tf_config --cluster_from=SCHEDULER [--cluster_tasks=ps:2,...]
           Print the TF_CONFIG of this task, for what reads it.""",
    run=_print, flags_help=lambda _: flag_help.help_text(PlaceConfig))
