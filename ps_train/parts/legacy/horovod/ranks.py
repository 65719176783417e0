"""Which rank this task has, from its cluster: Horovod numbers the processes that train, and those of each machine.

    TF_CONFIG --> Cluster --> rank, size; local_rank, local_size (of a machine); cross_rank, cross_size (the machines)

Rank 0 is the chief. A ps has no rank.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ps_train.cluster import addresses, resolve
from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Ranks:
    """The place of a worker among the others.

    Attributes:
      rank: its number; 0 is the chief.
      hosts: the machine of each worker, by rank.
    """

    rank: int
    hosts: Sequence[str]

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.hosts)

    @property
    def local_rank(self) -> int:
        """The number of workers on this machine whose rank is lower: it chooses the GPU."""
        return list(self.hosts[:self.rank]).count(self.hosts[self.rank])

    @property
    def local_size(self) -> int:
        """The number of workers on this machine."""
        return list(self.hosts).count(self.hosts[self.rank])

    @property
    def cross_rank(self) -> int:
        """The number of this machine among those that have a worker of this local rank."""
        return self._machines().index(self.hosts[self.rank])

    @property
    def cross_size(self) -> int:
        """The number of machines that have a worker of this local rank."""
        return len(self._machines())

    def _machines(self) -> list[str]:
        return [host for host in dict.fromkeys(self.hosts) if list(self.hosts).count(host) > self.local_rank]

    @property
    def is_homogeneous(self) -> bool:
        """Whether each machine has as many workers as the others."""
        return len({list(self.hosts).count(host) for host in self.hosts}) == 1


ALONE = Ranks(0, ("localhost",))


def horovod_cluster(tf_config: str) -> Cluster | None:
    """Returns the cluster of a Horovod script; None if TF_CONFIG is not set: the script runs alone, as rank 0 of 1.

    Raises:
      ConfigError: TF_CONFIG is malformed or has no ps, or the cluster or task is of another kind.
    """
    if not tf_config.strip():
        return None
    cluster = resolve.find_cluster(tf_config=tf_config)
    if cluster.job == "evaluator":
        raise ConfigError("horovod_task", "hvd.init(): this task is evaluator:0; a Horovod script has ps, chief and "
                          "worker tasks only: leave --evaluator out")
    if cluster.is_elastic:
        raise ConfigError("horovod_task", "hvd.init(): the cluster in TF_CONFIG is elastic; a Horovod script needs the "
                          "addresses of all workers: give TF_CONFIG with all of them")
    return cluster


def ranks_of(cluster: Cluster) -> Ranks:
    """Returns the place of this worker."""
    by_number = {cluster.number_of(worker): addresses.host_of(worker.address) for worker in cluster.workers}
    return Ranks(cluster.worker_number, tuple(by_number[number] for number in sorted(by_number)))
