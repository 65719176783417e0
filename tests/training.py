"""A training of real processes that stands still at a gate, so that a fault has its moment."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import signal
import threading

from ps_train.cluster.spec import Cluster
from ps_train.runtime import waits
from tests.processes import DEADLINE_SECS, REPO, TaskCluster

GATE_BATCH = 30
LOG_STEPS = 10
TRAIN_STEPS = 200
MODES = {"async": [], "sync": ["--sync_replicas"]}


class Training:
    """A cluster that trains up to its gates: each worker takes so many mini-batches, then waits in its input.

    Attributes:
      cluster: the tasks and their addresses.
      group: their processes, each by the name `job-index`.
      train_dir: where the chief saves.
    """

    def __init__(self, tmp_path, group, num_ps=2, num_workers=2, flags=(), start_timeout_secs=60, params="",
                 holds_evaluation=False, absent=(), faults=None, before=(), train_steps=TRAIN_STEPS,
                 beat_timeout_secs=4, is_ps_last=False, model="tiny"):
        """Starts it.

        Args:
          holds_evaluation: whether the chief's evaluation waits for `open_eval_gate`.
          params: further parameters of the plug-in `tiny`, each with a comma in front.
          absent: names of tasks that are not started yet.
          faults: name of a task -> what its copy of the plug-in does wrong, see tests/plugins/tiny.py.
          is_ps_last: whether the ps start when the workers wait for them: one that is idle for a while was then left.
          before: what each task's command begins with.
          model: a plug-in of tests/plugins, for the data of `tiny`.
        """
        self.folder, self.group, self.before, self.train_steps = tmp_path, group, before, train_steps
        self.train_dir = tmp_path / "train"
        for name in {"tiny", model}:
            shutil.copy(REPO / f"tests/plugins/{name}.py", tmp_path)
        self.cluster = TaskCluster(num_ps, num_workers)
        params += f",eval_gate={tmp_path}/eval_gate" if holds_evaluation else ""
        self.flags = [f"--model={model}", "--dataset=tiny", "--batch_size=16", f"--log_steps={LOG_STEPS}",
                      f"--train_steps={train_steps}", f"--train_dir={self.train_dir}",
                      f"--params=gate={tmp_path}/gate,gate_batch={GATE_BATCH}{params}",
                      f"--beat_timeout_secs={beat_timeout_secs}", f"--start_timeout_secs={start_timeout_secs}", *flags]
        for job, index in sorted(self.cluster.tasks(), key=lambda task: task[0], reverse=is_ps_last):
            if f"{job}-{index}" in absent:
                continue
            if is_ps_last and job == "ps" and index == 0:
                self._wait_until_all_serve()
            self.start(job, index, fault=(faults or {}).get(f"{job}-{index}", ""))

    def start(self, job, index, name=None, flags=(), fault=""):
        """Starts a task, by another name when it is started again; its own flags replace those of all."""
        own = {flag.partition("=")[0] for flag in flags}
        of_all = [flag for flag in self.flags if flag.partition("=")[0] not in own]
        self.group.start(name or f"{job}-{index}", [*self.cluster.flags(job, index), *of_all, *flags],
                         cwd=self.folder, env={"TINY_FAULT": fault}, before=self.before)

    def _wait_until_all_serve(self):
        for name in self.group.names:
            self.group.wait_for_line(name, "serves at")

    def wait_for_gates(self, *workers):
        """Returns when these workers have trained up to their gates."""
        for name in workers or [f"worker-{index}" for index in range(len(self.cluster.workers))]:
            self.group.wait_for_line(name, "examples/s", number=GATE_BATCH // LOG_STEPS)

    def open_gates(self, *indices):
        """Lets these workers, or all, train to the end."""
        for index in indices or range(len(self.cluster.workers)):
            pathlib.Path(f"{self.folder}/gate.{index}").touch()

    def open_eval_gate(self):
        """Lets the chief evaluate, where it waits for that."""
        pathlib.Path(f"{self.folder}/eval_gate").touch()

    def kill(self, name):
        """Ends a task as kill -9 does."""
        self.group.signal(name, signal.SIGKILL)
        assert self.group.exit_code(name) == -signal.SIGKILL

    def wait_for_state(self, state):
        """Returns when the blackboard says that training is there."""
        # What asks imports TensorFlow, which most tests of processes do not need in their own.
        from ps_train.coordination import blackboard  # noqa: PLC0415

        view = Cluster("worker", 0, {"ps": dict(enumerate(self.cluster.ps)),
                                     "worker": dict(enumerate(self.cluster.workers))})
        with contextlib.closing(blackboard.for_client(view)) as board:
            waits.until(lambda: board.state() >= state, DEADLINE_SECS, state.name, threading.Event())

    def stop(self):
        """Tells all tasks to stop, as a scheduler does; each exits 143."""
        for job, index in self.cluster.tasks():
            self.group.signal(f"{job}-{index}", signal.SIGTERM)
        assert set(self.group.wait().values()) == {143}

    def assert_ends_well(self, killed=()):
        """All tasks but the killed ones exit 0, and the checkpoint is at the last step."""
        codes = self.group.wait()
        assert {name: code for name, code in codes.items() if name not in killed and code} == {}
        from tests import clusters  # noqa: PLC0415 (it imports TensorFlow, which the processes need and this one does not)

        assert clusters.read_checkpoint(self.train_dir)["global_step"] >= self.train_steps
