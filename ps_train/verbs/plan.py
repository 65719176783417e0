"""The verb `plan`: what a training would place and transfer."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.control.plan import PlanFlags, parse_plan
from ps_train.config.task import Config
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb


def _plan(argv: Sequence[str]) -> None:
    config, cluster, flags = parse_plan(argv)
    installed.prepare_import(needs_gpu=False, tf_log=config.tf_log)
    from ps_train.control import planning  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    planning.print_plan(config, cluster, flags.json)


PLAN = Verb(
    usage="""\
  ps_train plan [--num_ps=2] [--num_workers=2] [flags of train]
           Show which variable goes to which ps, and what a step transfers.""",
    run=_plan, flags_help=lambda _: fields.help_text(PlanFlags, Config))
