"""Parses TF_CONFIG, the environment variable with which schedulers describe the cluster to a task.

    dense    {"cluster": {"ps": ["host:port", ...], "worker": [...]}, "task": {"type": "worker", "index": 0}}
    sparse   {"cluster": {"ps": [...], "worker": {"0": ..., "3": ...}}, "task": {"type": "worker", "index": 3}}
    dynamic  {"cluster": {"ps": [...], "worker": {"3": "host:port"}}, "task": {"type": "worker", "index": 3}}
             {"cluster": {"ps": ["host:port"], "worker": {}}, "task": {"type": "ps", "index": 1}}

Kubeflow's operator writes the dynamic form with `enableDynamicWorker`. A worker gets all ps and itself. A ps gets only
itself, as the one entry of its list, at any index. Some platforms list the chief again, as worker 0: it is one task.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from ps_train.cluster.addresses import parse_address, refuse_duplicates
from ps_train.cluster.spec import CHIEF_JOBS, JOBS
from ps_train.errors import ConfigError

LARGEST_INDEX = 1022  # the blackboard has room for 1024 workers, including a chief task
_INDEX = re.compile(r"[0-9]{1,9}")  # TensorFlow stores an index in 32 bits
_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TfConfig:
    """The content of TF_CONFIG.

    Attributes:
      job: the task's job.
      index: the task's index in its job.
      addresses: job -> index -> address.
      is_dynamic: whether it has the dynamic form, that of a cluster whose workers may join and leave.
      sparse_jobs: the jobs given by index, of which it may list only some tasks.
    """

    job: str
    index: int
    addresses: dict[str, dict[int, str]]
    is_dynamic: bool
    sparse_jobs: frozenset[str]


def parse_tf_config(text: str, needs_ps: bool = True) -> TfConfig:
    """Returns the content of TF_CONFIG, which may have any of the three forms.

    Args:
      text: the text of the environment variable.
      needs_ps: whether a cluster without a ps is an error.

    Raises:
      ConfigError: the text is not JSON (the error gives the position), lacks a part, or contradicts itself.
    """
    content = _parse_json(text)
    cluster, task = _mapping(content, "cluster"), _mapping(content, "task")
    is_dynamic = _is_dynamic(cluster, task)
    if is_dynamic:
        cluster = _list_by_index(cluster, task)
    addresses = {job: _parse_job(job, tasks) for job, tasks in cluster.items()}
    if all(job in addresses for job in CHIEF_JOBS):
        raise ConfigError("tf_config_two_chiefs",
                          "TF_CONFIG: cluster names both a chief and a master; they are the same role, keep one")
    job, index = _parse_task(task, addresses)
    if chief_job := chief_listed_again(addresses):
        _log.info("TF_CONFIG lists %s:0 again, as worker:0; they are one task, worker:0, the chief", chief_job)
        del addresses[chief_job]
        job = "worker" if job == chief_job else job
    refuse_duplicates(addresses)
    if needs_ps and "ps" not in addresses:
        raise ConfigError("tf_config_without_ps",
                          "TF_CONFIG: cluster names no ps; allowed: at least one, such as \"ps\": [\"host:2222\"]")
    if not (is_dynamic or addresses.keys() & {"worker", *CHIEF_JOBS}):
        raise ConfigError("tf_config_without_workers",
                          "TF_CONFIG: cluster names no worker and no chief; allowed: at least one of them")
    sparse_jobs = frozenset(job for job, tasks in cluster.items() if isinstance(tasks, dict))
    return TfConfig(job, index, addresses, is_dynamic, sparse_jobs)


def chief_listed_again(addresses: Mapping[str, Mapping[int, str]]) -> str:
    """Returns the job of the chief if worker 0 has its address, which makes them one task of two names; "" if not."""
    first = addresses.get("worker", {}).get(0, "").lower()
    return next((job for job in CHIEF_JOBS if first and addresses.get(job, {}).get(0, "").lower() == first), "")


def _is_dynamic(cluster: Mapping[str, Any], task: Mapping[str, Any]) -> bool:
    """Returns whether this is the dynamic form: a list of ps, and an object of workers with at most this task."""
    this_worker = {str(task.get("index"))} if task.get("type") == "worker" else set()
    return (cluster.keys() == {"ps", "worker"} and isinstance(cluster["ps"], list)
            and isinstance(cluster["worker"], dict) and cluster["worker"].keys() == this_worker)


def _list_by_index(cluster: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the cluster part of the dynamic form with a single ps under its index, and without empty jobs."""
    jobs = {job: tasks for job, tasks in cluster.items() if tasks or job == "ps"}
    if task.get("type") == "ps" and len(jobs["ps"]) == 1:
        jobs["ps"] = {_parse_index("TF_CONFIG: task index", task.get("index")): jobs["ps"][0]}
    return jobs


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        remaining = text[error.pos:error.pos + 20]
        raise ConfigError("tf_config_not_json",
                          f"TF_CONFIG: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}, "
                          f"{f'before {remaining!r}' if remaining else 'the end'}") from None
    except (ValueError, RecursionError) as error:  # a number with thousands of digits, thousands of brackets
        raise ConfigError("tf_config_not_json", f"TF_CONFIG: cannot be read as JSON: {error}") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the dict of a JSON object; refuses a repeated key, of which json would keep only the last."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError("tf_config_duplicate_key", f"TF_CONFIG: {key!r} occurs twice in an object; keep one")
    return dict(pairs)


def _mapping(content: Any, key: str) -> dict[str, Any]:
    part = content.get(key) if isinstance(content, dict) else None
    if not isinstance(part, dict) or not part:
        raise ConfigError("tf_config_incomplete", f"TF_CONFIG: {key!r} is missing or not an object; it should read "
                          'like {"cluster": {"ps": ["host:2222"], "worker": ["host:2223"]}, '
                          '"task": {"type": "worker", "index": 0}}')
    return part


def _parse_job(job: str, tasks: Any) -> dict[int, str]:
    """Returns index -> address of the dense `["host:port", ...]` or the sparse `{"3": "host:port"}`."""
    name = f"TF_CONFIG: cluster[{job!r}]"
    if job not in JOBS:
        raise ConfigError("tf_config_unknown_job", f"{name}: unknown job; allowed: {', '.join(JOBS)}")
    if not isinstance(tasks, (list, dict)) or not tasks:
        raise ConfigError("tf_config_malformed",
                          f"{name}: got {tasks!r}; allowed: a list of host:port, or an object of index: host:port")
    if job in CHIEF_JOBS and len(tasks) > 1:
        raise ConfigError("tf_config_two_chiefs", f"{name}: names {len(tasks)} tasks; allowed: 1")
    items = enumerate(tasks) if isinstance(tasks, list) else tasks.items()
    addresses: dict[int, str] = {}
    for key, address in items:
        index = _parse_index(f"{name} index", key)
        if index in addresses:
            raise ConfigError("tf_config_duplicate_key", f"{name}: index {index} occurs twice; keep one")
        addresses[index] = parse_address(f"{name}[{key}]", address)
    if job in CHIEF_JOBS and 0 not in addresses:  # its index is its number among the workers, of which 1 is worker 0's
        raise ConfigError("tf_config_bad_index", f"{name} index: got {index}; allowed: 0, the index of the only {job}")
    return addresses


def _parse_index(name: str, value: Any) -> int:
    """Returns a task index written as 3 or, as templates often do, as "3"."""
    if not _INDEX.fullmatch(str(value)) or int(value) > LARGEST_INDEX:
        raise ConfigError("tf_config_bad_index",
                          f"{name}: got {value!r}; allowed: an integer from 0 to {LARGEST_INDEX}")
    return int(value)


def _parse_task(task: dict[str, Any], addresses: Mapping[str, Mapping[int, str]]) -> tuple[str, int]:
    job = task.get("type")
    # Estimator's and Kubeflow's TF_CONFIG leave out the evaluator, which is not part of the training cluster.
    jobs = [*addresses, *(["evaluator"] if "evaluator" not in addresses else [])]
    if job not in jobs:
        raise ConfigError("tf_config_unknown_job", f"TF_CONFIG: task type is {job!r}; allowed: {', '.join(jobs)}")
    index = _parse_index("TF_CONFIG: task index", task.get("index"))
    if job in addresses and index not in addresses[job]:
        known = ", ".join(str(known_index) for known_index in sorted(addresses[job]))
        raise ConfigError("tf_config_bad_index",
                          f"TF_CONFIG: task index is {index}; allowed: {known}, the indices of job {job!r}")
    return job, index
