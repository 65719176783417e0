"""The environment of a task, read with checks: an error names the variable, its value, and where it is set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ps_train.errors import ConfigError

_NUMBER = re.compile(r"[0-9]{1,10}")
_FROM_LABEL = ("add it to the container's env: {{name: {name}, valueFrom: {{fieldRef: {{fieldPath: "
               "\"metadata.labels['{label}']\"}}}}}}")
_LABELS = {
    "JOBSET_NAME": "jobset.sigs.k8s.io/jobset-name",
    "JOBSET_REPLICATED_JOB": "jobset.sigs.k8s.io/replicatedjob-name",
    "JOB_NAME": "batch.kubernetes.io/job-name",
}


class FoundTask(NamedTuple):
    """A task in its cluster.

    Attributes:
      addresses: job -> "host:port" of each of its tasks.
      job: the job of this task.
      index: its index in the job.
    """

    addresses: Mapping[str, list[str]]
    job: str
    index: int


class Environment:
    """The variables of a process in which it looks for its cluster."""

    def __init__(self, environ: Mapping[str, str], source: str) -> None:
        """Takes the variables, and the value of --cluster_from for errors."""
        self._environ, self._source = environ, source

    def optional(self, name: str) -> str:
        """Returns the value of a variable, "" if it is not set."""
        return self._environ.get(name, "").strip()

    def required(self, name: str) -> str:
        """Returns the value of a variable.

        Raises:
          ConfigError: it is not set, or empty.
        """
        value = self.optional(name)
        if not value:
            raise ConfigError("scheduler_variable_missing", f"{name}: not set, and --cluster_from={self._source} "
                              f"needs it; {_advice(name)}")
        return value

    def matching(self, name: str, pattern: re.Pattern, description: str) -> str:
        """Returns the value of a variable that has the form of the pattern; `description` says which.

        Raises:
          ConfigError: it is not set, or has another form.
        """
        value = self.required(name)
        if not pattern.fullmatch(value):
            raise ConfigError("scheduler_variable_malformed",
                              f"{name}: got {value!r}; allowed: {description}; {_advice(name)}")
        return value

    def number(self, name: str, largest: int) -> int:
        """Returns the value of a variable as a number from 0 to `largest`.

        Raises:
          ConfigError: it is not set, or is no such number.
        """
        value = self.required(name)
        if not _NUMBER.fullmatch(value) or int(value) > largest:
            raise ConfigError("scheduler_variable_malformed",
                              f"{name}: got {value!r}; allowed: a number from 0 to {largest}; {_advice(name)}")
        return int(value)

    def one_of(self, name: str, values: Sequence[str]) -> str:
        """Returns the value of a variable that is one of `values`.

        Raises:
          ConfigError: it is not set, or has another value.
        """
        value = self.required(name)
        if value not in values:
            raise ConfigError("scheduler_variable_malformed",
                              f"{name}: got {value!r}; allowed: one of {', '.join(values)}; {_advice(name)}")
        return value


def _advice(name: str) -> str:
    """Returns who sets a variable, as the end of a message."""
    if name in _LABELS:
        return _FROM_LABEL.format(name=name, label=_LABELS[name])
    if name == "JOB_COMPLETION_INDEX":
        return "give the Job completionMode: Indexed"
    if name.startswith("SLURM"):
        return "start this with srun, inside an allocation of Slurm"
    return "set it as the flag of that name, such as PS_TRAIN_PS_HOSTS=host:2222"
