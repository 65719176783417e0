"""What is run: a setting, and the tasks that a peer starts for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Callable, NamedTuple

from benchmarks.harness.wires import Link, Wires


@dataclasses.dataclass(frozen=True)
class Setting:
    """The work, the cluster, the network between its tasks, and how long a run lasts.

    Attributes:
      data_dir: folder of MNIST, "" for the drawn digits.
      model, params: the plug-in (of the peers that take one).
      num_ps: for the peers that have one.
      batches, min_secs, max_secs: see recording.Limits.
      has_accuracy: whether the parameters are recorded, which needs them all on one ps.
      train_batches: with it nothing is recorded, and the chief saves and ends when so many mini-batches are done.
      link: what is between each worker and each ps; None for a direct connection.
    """

    data_dir: str = ""
    model: str = "models.mlp"
    params: str = ""
    optimizer: str = "adam"
    learning_rate: float = 0.003
    batch_size: int = 100
    seed: int | None = None
    num_ps: int = 1
    num_workers: int = 2
    batches: int = 4000
    min_secs: float = 6.0
    max_secs: float = 60.0
    has_accuracy: bool = True
    train_batches: int | None = None
    link: Link | None = None

    def common_flags(self) -> list[str]:
        """Returns what every peer of `benchmarks.harness.options` is told."""
        flags = {name: getattr(self, name) for name in (
            "data_dir", "learning_rate", "batch_size", "batches", "min_secs", "max_secs")}
        if self.seed is not None:
            flags["seed"] = self.seed
        return [f"--{name}={value}" for name, value in flags.items()]


class Task(NamedTuple):
    """One process of a peer.

    Attributes:
      name: such as "worker-1"; its log is called so.
      command: after `python`.
      environ: further environment variables.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = MappingProxyType({})


class Cast(NamedTuple):
    """The processes of one run.

    Attributes:
      tasks: those that train, the ones whose memory and bytes count.
      recorder: the name of the task whose end is the end of the run, as a rule the one that records.
      observer: that task besides, where a training is looked at from outside.
      wires: what lies between the tasks.
    """

    tasks: Sequence[Task]
    recorder: str
    wires: Wires
    observer: Task | None = None


class Peer(NamedTuple):
    """Somebody to measure.

    Attributes:
      name: in the table.
      cast: called with the setting and the folder of the run, an absolute path; returns who is to be started.
    """

    name: str
    cast: Callable[[Setting, str], Cast]
