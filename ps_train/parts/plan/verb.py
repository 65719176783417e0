"""The verb `plan`, with the flags of a training and the size of its cluster."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence

from ps_train.cluster.resolve import find_cluster
from ps_train.cluster.spec import Cluster
from ps_train.config import fields, flag_help
from ps_train.config.fields import field
from ps_train.config.folders import check_data_dir
from ps_train.config.launch import PLACED_BY_PARTS, LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import Problem, refuse
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb

_PLAN = "The plan"


@dataclasses.dataclass(frozen=True)
class PlanFlags:
    """The flags of `ps_train plan` in addition to those of a task."""

    num_ps: int = fields.redeclare(LaunchConfig, "num_ps", group=_PLAN, help="Parameter servers, without --ps_hosts.")
    num_workers: int = fields.redeclare(
        LaunchConfig, "num_workers", group=_PLAN, help="Workers, including the chief, without --worker_hosts.")
    json: bool = field(False, _PLAN, "Print one JSON object.")


def parse_plan(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> tuple[Config, Cluster, PlanFlags]:
    """Returns the flags of a training, its cluster as the chief or the task of the flags sees it, and the plan's flags.

    Raises:
      ConfigError: the command line is wrong.
    """
    values, given = fields.parse_flags(argv, PlanFlags, Config, help_command="ps_train plan --help")
    plan_flags = PlanFlags(**{name: values.pop(name) for name in fields.rules(PlanFlags)})
    config = Config(**values, given=given - fields.rules(PlanFlags).keys(), tf_config=environ.get("TF_CONFIG", ""))
    refuse(_superfluous_numbers(given, config.tf_config) + [
        Problem("flag_of_another_verb", f"--{name}: has no effect in `ps_train plan`; leave it out, and give --num_ps "
                "and --num_workers") for name in sorted(given & PLACED_BY_PARTS)])
    # Any address will do, as only their number counts.
    ps, workers = ([f"localhost:{first + index}" for index in range(count)]
                   for first, count in ((20000, plan_flags.num_ps), (40000, plan_flags.num_workers)))
    cluster = find_cluster(
        ps_hosts=config.ps_hosts if "ps_hosts" in given else ",".join(ps),
        worker_hosts=config.worker_hosts if "worker_hosts" in given else ",".join(workers),
        job_name=config.job_name or "worker", task_index=config.task_index or 0, tf_config=config.tf_config,
        given=config.given, elastic=config.elastic)
    if cluster.job in ("ps", "evaluator"):  # the plan is that of the chief's graph
        cluster = dataclasses.replace(cluster, job=cluster.chief.job, index=cluster.chief.index)
    return config, cluster, plan_flags


def _superfluous_numbers(given: Collection[str], tf_config: str) -> list[Problem]:
    """Returns a problem for each number of tasks that is given in addition to their addresses."""
    hosts_flags = {"num_ps": "ps_hosts", "num_workers": "worker_hosts"}
    sources = {name: "TF_CONFIG" if tf_config.strip() else f"--{hosts}" for name, hosts in hosts_flags.items()
               if name in given and (tf_config.strip() or hosts in given)}
    return [Problem("flags_conflict", f"--{name}: {source} names the tasks already; omit one of them")
            for name, source in sources.items()]


def _plan(argv: Sequence[str]) -> None:
    config, cluster, plan_flags = parse_plan(argv)
    check_data_dir(config)
    installed.import_tensorflow(needs_gpu=False, tf_log=config.tf_log)
    from ps_train.parts.plan import plan  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    plan.print_plan(config, cluster, plan_flags.json)


PLAN = Verb(
    usage="""\
  ps_train plan [--num_ps=2] [--num_workers=2] [flags of train]
           Show which variable goes to which ps, and what a step transfers.""",
    run=_plan, flags_help=lambda _: flag_help.help_text(PlanFlags, Config))
