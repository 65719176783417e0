"""Clusters of `ps_train run`, for tests."""

from __future__ import annotations

import json

from tests.processes import REPO, ProcessGroup, TaskCluster

SCRIPTS = REPO / "tests/scripts"
TASK_FLAGS = ("--beat_timeout_secs=4", "--start_timeout_secs=60", "--step_timeout_secs=20", "--stop_timeout_secs=20")


class ScriptCluster:
    """One process per task, each of which runs a script of tests/scripts.

    Attributes:
      group: the processes, each by the name `job-index`.
    """

    def __init__(self, group: ProcessGroup, script: str, arguments: list[str], *, num_ps: int = 1, num_workers: int = 2,
                 chief: bool = False, chief_again: bool = False, evaluator: bool = False,
                 by_flags: bool = False) -> None:
        """Starts it.

        Args:
          chief: whether the first worker is the task chief:0.
          chief_again: whether TF_CONFIG lists it again, as worker 0, which has no process.
          by_flags: whether the tasks are placed by the classic flags, not by TF_CONFIG.
        """
        self.group = group
        self._script, self._arguments, self._by_flags = script, arguments, by_flags
        self._ports = TaskCluster(num_ps, num_workers)
        hosts = {"ps": self._ports.ps, "worker": self._ports.workers}
        if chief:
            hosts = {"ps": self._ports.ps, "chief": self._ports.workers[:1], "worker": self._ports.workers[1:]}
        self.hosts = {job: tasks for job, tasks in hosts.items() if tasks}
        self.tasks = [(job, index) for job, tasks in self.hosts.items() for index in range(len(tasks))]
        if chief_again:
            self.hosts["worker"] = self._ports.workers
            self.tasks = [(job, index + (job == "worker")) for job, index in self.tasks]
        self.tasks += [("evaluator", 0)] * evaluator
        for job, index in self.tasks:
            self.start(job, index)

    def start(self, job: str, index: int, name: str | None = None, arguments: list[str] | None = None) -> None:
        """Starts a task, by another name when it is started again."""
        arguments = self._arguments if arguments is None else arguments
        env = {}
        if self._by_flags:
            arguments = [*arguments, *self._ports.flags(job, index)]
        else:
            env["TF_CONFIG"] = json.dumps({"cluster": self.hosts, "task": {"type": job, "index": index}})
        self.group.start(name or f"{job}-{index}",
                         ["run", *TASK_FLAGS, str(SCRIPTS / self._script), *arguments], env=env)

    def assert_ends_well(self, killed: tuple[str, ...] = ()) -> None:
        """Every process exits with 0, but for the killed ones."""
        codes = self.group.wait()
        assert {name: code for name, code in codes.items() if code and name not in killed} == {}
