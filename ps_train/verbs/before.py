"""The verbs before a training: `plan` and `doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.config.control.doctor import DoctorConfig, parse_doctor
from ps_train.config.control.plan import PlanFlags, parse_plan
from ps_train.config.groups import check_data_dir
from ps_train.config.task import Config
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb


def _plan(argv: Sequence[str]) -> None:
    config, cluster, flags = parse_plan(argv)
    check_data_dir(config)
    installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
    from ps_train.control import planning  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    planning.print_plan(config, cluster, flags.json)


def _doctor(argv: Sequence[str]) -> None:
    from ps_train.control.doctor import examine  # noqa: PLC0415 (no other verb needs it)

    examine.examine(parse_doctor(argv))


PLAN = Verb(
    usage="""\
  ps_train plan [--num_ps=2] [--num_workers=2] [flags of train]
           Show which variable goes to which ps, and what a step transfers.""",
    run=_plan, flags_help=lambda _: fields.help_text(PlanFlags, Config))
DOCTOR = Verb(
    usage="""\
  ps_train doctor [--ps_hosts=... --worker_hosts=... [--job_name=JOB]]
           Examine this machine, and the network between the tasks.""",
    run=_doctor, flags_help=lambda _: fields.help_text(DoctorConfig))
