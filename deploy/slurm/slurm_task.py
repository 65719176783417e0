"""Runs one task of a Slurm job step as one task of a ps_train cluster: builds TF_CONFIG from SLURM_*.

    srun --> slurm_task.py --num_ps=2 -- FLAGS --> TF_CONFIG='{"cluster": ..., "task": ...}' python -m ps_train FLAGS

The first tasks of the step are the ps and the others the workers; worker 0 is the chief. TensorFlow's own
`SlurmClusterResolver` provides the addresses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence

_BAD_CONFIGURATION = 2
_FIRST_PORT, _NUM_PORTS, _PORTS_PER_JOB = 20000, 10000, 100  # below where outgoing connections take theirs
_ORDER = "|"  # is in no host name


def tf_config(num_ps: int) -> str:
    """Returns the TF_CONFIG of this task of the step.

    Raises:
      ValueError: the step is not of the shape that this needs; the text says what to change.
    """
    num_tasks = int(_slurm("STEP_NUM_TASKS"))
    if not 1 <= num_ps < num_tasks:
        raise ValueError(f"--num_ps: got {num_ps}; allowed: 1 to {num_tasks - 1}, since the step has {num_tasks} tasks "
                         "and one of them must be a worker; give sbatch a larger --ntasks")
    resolver = _resolver({"ps": num_ps, "worker": num_tasks - num_ps}, _port_base())
    cluster = {job: [address.rpartition(_ORDER)[2] for address in addresses]
               for job, addresses in resolver.cluster_spec().as_dict().items()}
    job, index = resolver.get_task_info()
    host, node = cluster[job][index].rpartition(":")[0], os.environ.get("SLURMD_NODENAME")
    if host != node:
        raise ValueError(f"task {_slurm('PROCID')} of the step runs on {node}, and not on {host}, where "
                         f"{job}:{index} is expected; start the step with `srun --distribution=block`")
    return json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def _slurm(name: str) -> str:
    if f"SLURM_{name}" not in os.environ:
        raise ValueError(f"SLURM_{name} is not set; start this with srun, inside an allocation of Slurm")
    return os.environ[f"SLURM_{name}"]


def _port_base() -> int:
    """Returns the first port on each node: another one for each job, since jobs may share a node."""
    return _FIRST_PORT + int(_slurm("JOB_ID")) * _PORTS_PER_JOB % _NUM_PORTS


def _resolver(jobs: Mapping[str, int], port_base: int):
    """Returns TensorFlow's resolver, without its way with GPUs and its order of nodes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf  # noqa: PLC0415 (it takes seconds; what is wrong with the step should not)

    class InOrderOfTasks(tf.distribute.cluster_resolver.SlurmClusterResolver):
        """The resolver sorts the nodes as text, n10 before n2; Slurm numbers its tasks in the order of its list."""

        def _resolve_hostlist(self) -> list[str]:
            hosts = super()._resolve_hostlist()
            return [f"{position:06}{_ORDER}{host}" for position, host in enumerate(hosts)]

    # Without GPUs the resolver knows no task at all, and with them it would set CUDA_VISIBLE_DEVICES, which Slurm does:
    # so each task is given one that nobody looks at, however many of them are on a node.
    return InOrderOfTasks(dict(jobs), port_base=port_base, gpus_per_node=sum(jobs.values()), gpus_per_task=1,
                          auto_set_gpu=False)


def main(argv: Sequence[str]) -> int:
    """Becomes `python -m ps_train` with the flags behind `--`; returns the exit code where it cannot."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--num_ps", type=int, default=1, help="tasks of the step that are ps (default 1)")
    parser.add_argument("flags", nargs=argparse.REMAINDER, metavar="-- FLAGS", help="flags of ps_train")
    told = parser.parse_args(argv)
    environ = dict(os.environ)
    try:
        environ["TF_CONFIG"] = tf_config(told.num_ps)
    except (ValueError, RuntimeError) as error:  # the second is the resolver's
        print(f"slurm_task: {error}", file=sys.stderr)
        return _BAD_CONFIGURATION
    flags = told.flags[1:] if told.flags[:1] == ["--"] else told.flags
    return os.execve(sys.executable, [sys.executable, "-m", "ps_train", *flags], environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
