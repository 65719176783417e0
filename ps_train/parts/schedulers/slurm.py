"""Finds the cluster of a task of a Slurm job step; its tasks have jobs in the order of --cluster_tasks.

    SLURM_STEP_NODELIST=n[9-11], SLURM_STEP_TASKS_PER_NODE=2,1(x2)  -->  n9:PORT, n9:PORT+1, n10:PORT, n11:PORT

https://slurm.schedmd.com/srun.html#SECTION_OUTPUT-ENVIRONMENT-VARIABLES describes the variables. Slurm numbers the
tasks in the order of its list of nodes (`--distribution=block`), which is not that of the names as text: n9 is before
n10.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

from ps_train.cluster.tf_config import LARGEST_INDEX
from ps_train.errors import ConfigError
from ps_train.parts.schedulers.environment import Environment, FoundTask

_FIRST_PORT, _NUM_PORTS, _PORTS_PER_JOB = 20000, 10000, 100  # below where outgoing connections take theirs
_NODE_LIST = re.compile(r"(?:[^\[\],\s]|\[[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*\])+(?:,|$)")
_TASKS_PER_NODE = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


def find_task(variables: Environment, tasks: Mapping[str, int], first_port: int | None) -> FoundTask:
    """Returns this task of the step.

    Args:
      tasks: job -> number of tasks; the remaining tasks of the step are workers.
      first_port: of each node, or None for one that depends on the number of the Slurm job, as jobs may share a node.

    Raises:
      ConfigError: a variable is missing, or the step has another shape; the error says what to change.
    """
    num_tasks = variables.number("SLURM_STEP_NUM_TASKS", LARGEST_INDEX + 1)
    rank = variables.number("SLURM_PROCID", num_tasks - 1)
    jobs = _jobs(tasks, num_tasks)
    if first_port is None:
        first_port = _FIRST_PORT + variables.number("SLURM_JOB_ID", 2**32 - 1) * _PORTS_PER_JOB % _NUM_PORTS
    places = _places(variables, num_tasks)
    host, node = places[rank][0], variables.optional("SLURMD_NODENAME")
    job, index = jobs[rank], jobs[:rank].count(jobs[rank])
    if node and host != node:
        raise ConfigError("task_misplaced", f"SLURMD_NODENAME: task {rank} of the step runs on {node}, and the other "
                          f"tasks look for {job}:{index} on {host}; start the step with `srun --distribution=block`")
    addresses: dict[str, list[str]] = {}
    for task_job, (task_host, position) in zip(jobs, places):
        addresses.setdefault(task_job, []).append(f"{task_host}:{first_port + position}")
    return FoundTask(addresses, job, index)


def _jobs(tasks: Mapping[str, int], num_tasks: int) -> list[str]:
    """Returns the job of each task of the step."""
    jobs = [job for job, count in tasks.items() for _ in range(count)]
    remaining = num_tasks - len(jobs)
    is_complete = remaining == 0 and bool({"worker", "chief"} & tasks.keys())
    if not is_complete and (remaining < 1 or "worker" in tasks):
        number = f"{len(jobs)}" if "worker" in tasks else f"{len(jobs)} or more"
        raise ConfigError("task_not_in_cluster", f"--cluster_tasks: got {len(jobs)} tasks, and the step has "
                          f"{num_tasks}, one of which must be a worker; give sbatch --ntasks={number}, or count no "
                          "workers here to make all other tasks workers")
    return jobs + ["worker"] * remaining


def _places(variables: Environment, num_tasks: int) -> list[tuple[str, int]]:
    """Returns (node, position on that node) of each task of the step."""
    nodes = _expand_nodes(variables.required("SLURM_STEP_NODELIST"))
    counts = _expand_counts(variables.required("SLURM_STEP_TASKS_PER_NODE"))
    if len(nodes) != len(counts) or sum(counts) != num_tasks:
        raise ConfigError("scheduler_variable_malformed", f"SLURM_STEP_NODELIST: got {len(nodes)} nodes, and "
                          f"{sum(counts)} tasks on {len(counts)} nodes in SLURM_STEP_TASKS_PER_NODE, for "
                          f"{num_tasks} tasks; start this with srun, inside an allocation of Slurm")
    return [(node, position) for node, count in zip(nodes, counts) for position in range(count)]


def _expand_nodes(text: str) -> list[str]:
    """Returns the nodes of a list such as `gpu7,cpu[01-02,5]`, in its order; none if it has another form."""
    entries = [match[0].rstrip(",") for match in _NODE_LIST.finditer(text)]
    return [node for entry in entries for node in _expand_entry(entry)] if ",".join(entries) == text else []


def _expand_entry(entry: str) -> list[str]:
    parts = re.split(r"\[(.*?)\]", entry)  # text and the numbers in brackets, in turn
    choices = [_numbers(part) if position % 2 else [part] for position, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def _numbers(ranges: str) -> list[str]:
    """Returns the numbers of `01-03,7`, each as long as the first of its range."""
    bounds = [entry.partition("-") for entry in ranges.split(",")]
    return [f"{number:0{len(first)}}" for first, _, last in bounds
            for number in range(int(first), int(last or first) + 1)]


def _expand_counts(text: str) -> list[int]:
    """Returns the number of tasks of each node of a text such as `2,1(x2)`; none if it has another form."""
    entries = [_TASKS_PER_NODE.fullmatch(entry) for entry in text.split(",")]
    return [int(entry[1]) for entry in entries if entry for _ in range(int(entry[2] or 1))] if all(entries) else []
