"""The metrics of a task, made from its counts when Prometheus asks for them.

`CATALOGUE` has every metric of ps_train with its help; docs/health.md lists them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ps_train.errors import ConfigError
from ps_train.runtime import clock

# Name -> (type, help). A counter's samples end in _total.
CATALOGUE: dict[str, tuple[str, str]] = {
    "ps_train_ready": ("gauge", "1 if the task does its work, 0 while it waits."),
    "ps_train_global_step": ("gauge", "Global step that this worker has seen last."),
    "ps_train_target_step": ("gauge", "Global step at which training ends: --train_steps."),
    "ps_train_local_steps": ("counter", "Steps that this process has taken."),
    "ps_train_examples": ("counter", "Steps that this process has taken, times --batch_size."),
    "ps_train_loss": ("gauge", "Loss of the last mini-batch of this worker."),
    "ps_train_staleness_steps": ("summary", "Updates of others between the pull and the push of an update."),
    "ps_train_sessions_lost": ("counter", "Sessions of this worker that were lost and opened again."),
    "ps_train_workers_restarted": ("counter", "Workers that joined again as a new process; from the chief."),
    "ps_train_saves": ("counter", "Checkpoints that this process has saved; from the chief."),
    "ps_train_last_save_age_seconds": ("gauge", "Time since the last checkpoint of this process; from the chief."),
    "ps_train_upload_behind_steps": ("gauge", "Steps between the newest checkpoint and that in the store; from the "
                                     "chief."),
    "ps_train_last_upload_age_seconds": ("gauge", "Time since the last upload of this process; from the chief."),
    "ps_train_watermark_seconds": ("gauge", "Time since 1970 before which all data is trained (--follow); from the "
                                   "chief."),
    "ps_train_trained_p50_seconds": ("gauge", "Median time from event to trained of the last ranges (--follow); from "
                                     "the chief."),
    "ps_train_trained_p99_seconds": ("gauge", "The same at 99 %; from the chief."),
    "ps_train_ps_variable_bytes": ("gauge", "Bytes of the dense variables on a ps; from the chief."),
    "ps_train_table_rows": ("gauge", "Rows of an embedding table on a ps; from the chief."),
    "ps_train_table_bytes": ("gauge", "Bytes of the rows of an embedding table on a ps; from the chief."),
}


@dataclasses.dataclass
class TaskCounts:
    """What a task has counted. One thread writes a field; any thread reads it.

    Attributes:
      waits_for: what the task waits for before it does its work, "" if it works; see `missing`.
      is_worker: whether it takes steps.
      global_step, target_step, local_steps, batch_size, loss: see CATALOGUE; the loss is None before the first step,
        and the target if only the data ends the training.
      num_updates, sum_staleness: of the updates of this process.
      num_sessions: how many sessions with ready parameters there were.
      num_restarted: how many workers have joined again.
      num_saves, saved_secs: checkpoints, and when the last one was saved, by `clock.now`; None without one.
      ps_bytes: ps -> bytes of its dense variables; {} in tasks other than the chief.
      uploads: returns "behind_steps" and "secs" of the uploads to a store; {} if --train_dir is a folder.
      freshness: returns what the status of the sharding part says of it; {} without --follow.
      tables: returns (table, ps, rows, bytes) of each share of a table.
      is_serving: returns whether the task does what its server is for; a ps is nothing else.
    """

    waits_for: str = ""
    is_worker: bool = False
    is_chief: bool = False
    global_step: int = 0
    target_step: int | None = None
    local_steps: int = 0
    batch_size: int = 0
    loss: float | None = None
    num_updates: int = 0
    sum_staleness: int = 0
    num_sessions: int = 0
    num_restarted: int = 0
    num_saves: int = 0
    saved_secs: float | None = None
    ps_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    uploads: Callable[[], Mapping[str, Any]] = dict
    freshness: Callable[[], Mapping[str, Any]] = dict
    tables: Callable[[], Sequence[tuple[str, str, int, int]]] = lambda: ()
    is_serving: Callable[[], bool] = lambda: True

    def missing(self) -> str:
        """Returns what the task waits for before it does its work, "" if it works."""
        return self.waits_for if self.is_serving() else "its server"

    def samples(self) -> dict[str, list[tuple[tuple[str, ...], Any]]]:
        """Returns metric -> (label values, value) of each of its series; a summary has (count, sum)."""
        series: dict[str, list[tuple[tuple[str, ...], Any]]] = {"ps_train_ready": [((), int(not self.missing()))]}
        if self.is_worker:
            series.update(self._of_worker())
        if self.is_chief:
            series.update(self._of_chief())
        return series

    def _of_worker(self) -> Iterator[tuple[str, list[tuple[tuple[str, ...], Any]]]]:
        for name, value in (
            ("ps_train_global_step", self.global_step), ("ps_train_target_step", self.target_step),
            ("ps_train_local_steps", self.local_steps), ("ps_train_examples", self.local_steps * self.batch_size),
            ("ps_train_loss", self.loss), ("ps_train_staleness_steps", (self.num_updates, self.sum_staleness)),
            ("ps_train_sessions_lost", max(0, self.num_sessions - 1)),
        ):
            if value is not None:
                yield name, [((), value)]

    def _of_chief(self) -> Iterator[tuple[str, list[tuple[tuple[str, ...], Any]]]]:
        yield "ps_train_workers_restarted", [((), self.num_restarted)]
        yield "ps_train_saves", [((), self.num_saves)]
        if self.saved_secs is not None:
            yield "ps_train_last_save_age_seconds", [((), clock.now() - self.saved_secs)]
        uploads, freshness = self.uploads(), self.freshness()
        for name, value in (("ps_train_upload_behind_steps", uploads.get("behind_steps")),
                            ("ps_train_last_upload_age_seconds", uploads.get("secs")),
                            ("ps_train_watermark_seconds", freshness.get("watermark")),
                            ("ps_train_trained_p50_seconds", freshness.get("trained_secs_p50")),
                            ("ps_train_trained_p99_seconds", freshness.get("trained_secs_p99"))):
            if value is not None:
                yield name, [((), value)]
        yield "ps_train_ps_variable_bytes", [((ps,), size) for ps, size in self.ps_bytes.items()]
        shares = self.tables()
        yield "ps_train_table_rows", [((table, ps), rows) for table, ps, rows, _ in shares]
        yield "ps_train_table_bytes", [((table, ps), size) for table, ps, _, size in shares]


_LABELS = {"ps_train_ps_variable_bytes": ["ps"], "ps_train_table_rows": ["table", "ps"],
           "ps_train_table_bytes": ["table", "ps"]}


def import_prometheus() -> tuple[Any, Any]:
    """Returns the modules prometheus_client and its metrics_core; raises ConfigError if they are not installed."""
    try:
        import prometheus_client  # noqa: PLC0415 (of an extra)
        from prometheus_client import metrics_core  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("package_missing", f"--health_port: needs prometheus_client: {error}; pip install "
                          "'ps_train[health]'") from None
    return prometheus_client, metrics_core


class Exposition:
    """Writes the counts of a task in Prometheus' text format.

    Attributes:
      content_type: of the text.
    """

    def __init__(self, counts: TaskCounts, job: str, index: int) -> None:
        """Prepares it for a task.

        Raises:
          ConfigError: prometheus_client is not installed.
        """
        self._counts, self._task = counts, (job, str(index))
        self._client, self._core = import_prometheus()
        self._registry = self._client.CollectorRegistry()
        self._registry.register(self)
        self._process = self._client.ProcessCollector(registry=None)
        self.content_type = self._client.CONTENT_TYPE_LATEST

    def text(self) -> bytes:
        """Returns all metrics."""
        return self._client.generate_latest(self._registry)

    def describe(self) -> list[Any]:
        """Returns nothing: prometheus_client would else collect all metrics when this is registered."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yields the metrics; prometheus_client calls it."""
        families = {"gauge": self._core.GaugeMetricFamily, "counter": self._core.CounterMetricFamily,
                    "summary": self._core.SummaryMetricFamily}
        for name, series in self._counts.samples().items():
            kind, description = CATALOGUE[name]
            family = families[kind](name, description, labels=["job_name", "task_index", *_LABELS.get(name, ())])
            for labels, value in series:
                values = value if kind == "summary" else (value,)
                family.add_metric([*self._task, *labels], *values)
            yield family
        for family in self._process.collect():
            for sample in family.samples:
                sample.labels.update(job_name=self._task[0], task_index=self._task[1])
            yield family
