"""Counts what a worker does, and serves that with the health of the task while it runs."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Callable

from ps_train.cluster import reachability
from ps_train.graph import devices, placement
from ps_train.part import Part
from ps_train.parts.health.metrics import Exposition, TaskCounts, import_prometheus
from ps_train.parts.health.server import Pages, position_on_machine, serving
from ps_train.runtime import clock
from ps_train.runtime.reports import last_step
from ps_train.training.replica_graph import StepStatus

_log = logging.getLogger(__name__)


class TaskHealth:
    """The health and the metrics of one task, of any job.

    Attributes:
      counts: what the task counts.
    """

    def __init__(self, config: Any, cluster: Any) -> None:
        """Has counted nothing yet."""
        self._host, self._port = config.health_host, config.health_port + position_on_machine(cluster)
        is_ps = cluster.job == "ps"
        self.counts = TaskCounts(
            waits_for="" if is_ps else "its train_dir", is_worker=not is_ps and cluster.job != "evaluator",
            is_chief=cluster.is_chief, batch_size=config.batch_size,
            target_step=last_step(config.train_steps),
            is_serving=lambda: not is_ps or reachability.accepts(cluster.task.address))
        self._exposition = Exposition(self.counts, cluster.job, cluster.index)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serves while its body runs; raises ConfigError if it cannot."""
        pages = Pages(self.counts.missing, self._exposition.text, self._exposition.content_type)
        with serving(self._host, self._port, pages):
            _log.info("health at http://%s:%d/healthz, /readyz and /metrics",
                      f"[{self._host}]" if ":" in self._host else self._host, self._port)
            yield


@contextlib.contextmanager
def served_config(config: Any, cluster: Any, stop: threading.Event) -> Iterator[Any]:
    """Yields the Config of a task with its `TaskHealth`, which is served meanwhile: the same Config without the flag.

    It is entered before the task has its train_dir: a lock on a store, and the fetch of a large checkpoint, take longer
    than an orchestrator waits for /healthz, and so may the last upload.

    Args:
      cluster: its Cluster; None if it only checks the flags.
      stop: of the task; nothing here waits.

    Raises:
      ConfigError: prometheus_client is missing, or the port cannot be used.
    """
    if getattr(config, "health_port", None) is None:  # a Keras task has no such flag
        yield config
    elif cluster is None:
        import_prometheus()
        yield config
    else:
        health = TaskHealth(config, cluster)
        with health.serving():
            yield dataclasses.replace(config, health=health)


class HealthPart(Part):
    """Counts what a worker does, in its `TaskHealth`."""

    @classmethod
    def is_on(cls, config: Any, cluster: Any) -> bool:
        """Returns whether the task serves its health."""
        return config.health is not None

    def __init__(self, config: Any, cluster: Any) -> None:
        """Has counted nothing yet. The task has its train_dir now."""
        self._cluster, self._counts = cluster, config.health.counts
        self._counts.waits_for = "ready parameters" if self._counts.is_worker else ""

    def before_server(self, task: Any) -> None:
        """Takes the bytes on each ps; from now on the journal tells of checkpoints and workers."""
        if self._cluster.is_chief:
            self._counts.ps_bytes = bytes_by_ps(task.graph.savers.variables)
            task.journal.listen(self._noted)

    def _noted(self, event: str, values: Mapping[str, Any]) -> None:
        if event == "checkpoint":
            self._counts.saved_secs = clock.now()
            self._counts.num_saves += 1
        elif event == "worker" and values["what"] == "joined again":
            self._counts.num_restarted += 1

    def training(self, connected: Any) -> contextlib.AbstractContextManager:
        """Takes the place where the rows of tables, and the uploads to a store, are counted."""
        parts = connected.graph.parts
        self._counts.tables = lambda: [
            (table["name"], share["name"], share["rows"], share["bytes"])
            for table in parts.status().get("tables", ()) for share in table["ps"]]
        self._counts.uploads = lambda: parts.status().get("uploads", {})
        self._counts.freshness = lambda: parts.status().get("freshness", {})
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def running(self, session: Any, is_live: bool) -> Iterator[None]:
        """Counts the session, in which the task is ready."""
        self._counts.num_sessions += 1
        self._counts.waits_for = ""
        try:
            yield
        finally:
            self._counts.waits_for = "ready parameters"

    def around_step(self, session: Any, graph: Any, run_step: Callable) -> Callable:
        """Returns `run_step`, whose results are counted."""
        counts = self._counts

        def run(step: int, held_secs: float, fetches: Any, options: Any) -> Any:
            values = run_step(step, held_secs, fetches, options)
            for row in values[0]:
                status = StepStatus(*map(int, row))
                counts.global_step = status.step
                counts.local_steps += status.num_taken
                if status.num_taken:  # 0 in a round that began after the end
                    counts.num_updates += 1
                    counts.sum_staleness += status.staleness
            counts.loss = float(values[1])
            return values

        return run


def bytes_by_ps(variables: Any) -> dict[str, int]:
    """Returns ps -> bytes of its dense variables."""
    sizes: collections.Counter = collections.Counter()
    for variable in variables:
        sizes[f"ps:{devices.task_of(variable.device)[1] or 0}"] += placement.variable_bytes(variable.op)
    return dict(sizes)
