"""The verb `plan`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.groups import check_data_dir
from ps_train.config.task import Config
from ps_train.parts.plan.flags import PlanFlags, parse_plan
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb


def _plan(argv: Sequence[str]) -> None:
    config, cluster, flags = parse_plan(argv)
    check_data_dir(config)
    installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
    from ps_train.parts.plan import plan  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    plan.print_plan(config, cluster, flags.json)


PLAN = Verb(
    usage="""\
  ps_train plan [--num_ps=2] [--num_workers=2] [flags of train]
           Show which variable goes to which ps, and what a step transfers.""",
    run=_plan, flags_help=lambda _: fields.help_text(PlanFlags, Config))
