"""How the training of a worker ended, and what a task prints: its own lines, or those of the dist_mnist script.

    --log_format=ps_train    progress on stderr, each line with the time of day; the results on stdout
    --log_format=dist_mnist  on stdout the lines of the script, word for word, and nothing else, for existing
                             log parsers; everything else on stderr
    --log_format=json        the lines of ps_train as JSON objects, with the step, the loss and the metrics as values

`create` chooses the format once. Progress and stages also go to the launcher, as JSON: see `runtime/reports.py`.
"""

from __future__ import annotations

import enum
import logging
import time
from typing import NamedTuple

import numpy as np

from ps_train.cluster.spec import Cluster
from ps_train.coordination.state import NO_DATA, Snapshot
from ps_train.runtime import logs, reports
from ps_train.runtime.reports import Evaluation, Progress, Stage, evaluation_fields

_log = logging.getLogger(__name__)


class End(enum.Enum):
    """Why a worker's training ended."""

    STEPS = "the global step reached train_steps"
    ANNOUNCED = "the end of training was announced"
    DATA = NO_DATA
    HOOK = "a hook of the model asked for it"
    SIGNAL = "stopped"


class Outcome(NamedTuple):
    """What a worker did.

    Attributes:
      end: why it ended.
      first_step: the global step at which it began.
      global_step: the last global step that it read.
      local_steps: mini-batches that it trained on.
      elapsed_secs: time from its first step to its last, without waiting_secs.
      staleness: a line on the staleness of its updates, "" if it made none.
      reason: the reason that was announced with the end, "" if none was.
      waiting_secs: time in which it had no data, or its hook had ended it, and others may have trained.
    """

    end: End
    first_step: int
    global_step: int
    local_steps: int
    elapsed_secs: float
    staleness: str = ""
    reason: str = ""
    waiting_secs: float = 0.0

    @property
    def why(self) -> str:
        """Why it ended, in words."""
        return self.reason or self.end.value

    @property
    def is_data_end(self) -> bool:
        """Whether there was no more data, here or for an update."""
        return self.end is End.DATA or self.reason.startswith(NO_DATA)


class Report:
    """Prints ps_train's own lines."""

    def task(self) -> None:
        """Prints which task this is, if the line of the server does not."""

    def device(self, name: str) -> None:
        """Prints the device on which this worker computes."""

    def opening(self, existing_server: str) -> None:
        """Prints that a session is being opened, on an existing server unless its address is ""."""

    def training(self) -> None:
        """Prints that training begins, or goes on in a new session."""

    def step(self, progress: Progress, local_steps: int) -> None:
        """Prints the progress, after so many steps of this worker."""
        reports.send(progress, [progress.format()])
        _log.info(progress.format(), extra={"fields": {
            **progress._asdict(), "train_steps": reports.last_step(progress.train_steps), "local_steps": local_steps}})

    def trained(self) -> None:
        """Prints that this worker has taken its last step."""

    def stage(self, stage: Stage) -> None:
        """Prints what the chief does after its last step."""
        reports.send(stage, [stage.format()])
        _log.info(stage.format(), extra={"fields": {"step": stage.step}})

    def ended(self, outcome: Outcome, train_steps: int, batch_size: int) -> None:
        """Prints why training ended, and what this worker did."""
        if outcome.local_steps:
            rate = outcome.local_steps * batch_size / max(outcome.elapsed_secs, 1e-9)
            _log.info("training ended at step %d: %s; this worker did %d steps in %.2f s, %.0f examples/s",
                      outcome.global_step, outcome.why, outcome.local_steps, outcome.elapsed_secs, rate)
            _log.info("%s", outcome.staleness)
        elif outcome.end is End.STEPS:
            _log.info("nothing to train: the global step is %d, and --train_steps=%d", outcome.global_step, train_steps)
        else:
            _log.info("this worker took no step: %s", outcome.why)

    def evaluated(self, evaluation: Evaluation) -> None:
        """Prints the result of an evaluation."""
        logs.show(evaluation.format(), **evaluation_fields(evaluation))

    def result(self, text: str) -> None:
        """Prints any other result."""
        logs.show(text)


class DistMnistReport(Report):
    """Prints the lines of tensorflow/tools/dist_test/python/mnist_replica.py, which Kubeflow's dist_mnist.py also has.

    The line with the worker's device is in the style of the script, which does not print it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # The task index, unless the cluster has a chief task, which is then worker 0.
        self._name = f"Worker {cluster.worker_number}"
        self._begin_secs = 0.0  # 0 until training begins
        self._has_ended = False

    def task(self) -> None:
        logs.show(f"job name = {self._cluster.job}\ntask index = {self._cluster.index}")

    def device(self, name: str) -> None:
        logs.show(f"worker device = {name}")

    def opening(self, existing_server: str) -> None:
        what = "Initializing session" if self._cluster.is_chief else "Waiting for session to be initialized"
        logs.show(f"{self._name}: {what}...")
        if existing_server:
            logs.show(f"Using existing server at: {existing_server}")

    def training(self) -> None:
        logs.show(f"{self._name}: Session initialization complete.")
        if not self._begin_secs:  # training does not begin again after a lost session
            self._begin_secs = time.time()
            logs.show(f"Training begins @ {self._begin_secs:f}")

    def step(self, progress: Progress, local_steps: int) -> None:
        line = f"{time.time():f}: {self._name}: training step {local_steps} done (global step: {progress.step})"
        reports.send(progress, [line])
        logs.show(line)

    def trained(self) -> None:
        if not self._has_ended:  # the session may be lost again while the chief saves
            self._has_ended = True
            end_secs = time.time()
            logs.show(f"Training ends @ {end_secs:f}\nTraining elapsed time: {end_secs - self._begin_secs:f} s")

    def evaluated(self, evaluation: Evaluation) -> None:
        logs.show(f"After {evaluation.global_step} training step(s), validation cross entropy = "
                  f"{evaluation.loss_sum:g}")
        self.result(evaluation.format())

    def result(self, text: str) -> None:
        for line in text.splitlines():
            _log.info("%s", line)


def create(log_format: str, cluster: Cluster) -> Report:
    """Returns the Report of this task in a log format, one of groups.LOG_FORMATS."""
    return DistMnistReport(cluster) if log_format == "dist_mnist" else Report()


def steps_table(cluster: Cluster, snapshot: Snapshot) -> str:
    """Returns the lines on how many steps each worker took, including those that left; "" if there were no steps."""
    numbers = [int(number) for number in np.flatnonzero(snapshot.local_steps)]
    names = [cluster.worker_name(number) for number in numbers]
    titles = [f"{name} (chief)" if name == cluster.chief.name else name for name in names]
    steps = [int(snapshot.local_steps[number]) for number in numbers]
    endings = ["" if snapshot.finished[number] else "  left before the end" for number in numbers]
    if not steps:
        return ""
    width, digits = max(map(len, titles)), len(str(max(steps)))
    lines = [f"  {title:<{width}}  {count:>{digits}}  {count / sum(steps):6.1%}{ending}"
             for title, count, ending in zip(titles, steps, endings)]
    return "\n".join([f"Steps of each worker, {sum(steps)} in all:", *lines])
