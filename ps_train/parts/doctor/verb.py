"""The verb `doctor`."""

from __future__ import annotations

from collections.abc import Sequence

from ps_train.config import fields
from ps_train.parts.doctor.flags import DoctorConfig, parse_doctor
from ps_train.verbs.verb import Verb


def _doctor(argv: Sequence[str]) -> None:
    from ps_train.parts.doctor import examine  # noqa: PLC0415 (no other verb needs it)

    examine.examine(parse_doctor(argv))


DOCTOR = Verb(
    usage="""\
  ps_train doctor [--ps_hosts=... --worker_hosts=... [--job_name=JOB]]
           Examine this machine, and the network between the tasks.""",
    run=_doctor, flags_help=lambda _: fields.help_text(DoctorConfig))
