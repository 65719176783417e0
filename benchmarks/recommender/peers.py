"""Who trains the recommender model: the modes of ps_train, each a list of flags, and its peers."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

from benchmarks.harness import catalogue
from benchmarks.harness.trial import Cast, Peer, Setting, Task
from benchmarks.harness.wires import Wires
from benchmarks.recommender.work import Work

# Make a task write a line to stderr for each tensor that it asks of another task. gRPC sets the level of all logs.
_COUNTING = {"TF_CPP_VMODULE": "grpc_remote_worker=1", "TF_CPP_MIN_LOG_LEVEL": "0", "GRPC_VERBOSITY": "INFO"}


def ps_train(*flags: str) -> Peer:
    """Returns a mode of ps_train."""
    def cast(setting: Setting, folder: str) -> Cast:
        return catalogue.with_ps(_with_plug_ins(setting), folder, [
            "-m", "ps_train", "--dataset=benchmarks.recommender.dataset", f"--data_dir={setting.data_dir}",
            f"--learning_rate={setting.learning_rate}", f"--batch_size={setting.batch_size}",
            "--save_summaries_steps=0", *flags],
            setting.num_workers if "--sync_replicas" in flags else 1, ["--resource_variables"])

    return Peer(" ".join(["ps_train", *flags]), cast)


def _with_plug_ins(setting: Setting) -> Setting:
    work = Work.parse(setting.params)
    if not work.layers:
        return dataclasses.replace(setting, model="benchmarks.recommender.model")
    num_rows = 0 if work.is_dynamic else work.num_ids
    return dataclasses.replace(
        setting, model="models.deepfm", params=f"dim={work.dim},layers={work.layers},num_rows={num_rows}")


def classic(tables: int) -> Peer:
    """Returns the classic loop with 26 tables or one."""
    def cast(setting: Setting, folder: str) -> Cast:
        command = ["-m", "benchmarks.recommender.classic", f"--tables={tables}", *setting.common_flags()]
        return catalogue.with_ps(setting, folder, command, 1, ["--resource_variables"])

    return Peer(f"classic loop, {tables}", cast)


def strategy(steps_per_call: int) -> Peer:
    """Returns ParameterServerStrategy with so many steps in a closure."""
    def cast(setting: Setting, folder: str) -> Cast:
        wires = Wires(1, setting.num_workers + 1)
        *workers, chief = wires.workers
        command = ["-m", "benchmarks.recommender.strategy", f"--ps_hosts={wires.ps[0]}",
                   f"--worker_hosts={','.join(workers)}", f"--chief_host={chief}", f"--recording={folder}",
                   f"--steps_per_call={steps_per_call}", f"--params={setting.params}", *setting.common_flags()]
        members = [("ps", 0), *(("worker", index) for index in range(len(workers))), ("chief", 0)]
        return Cast([Task(f"{job}-{index}", [*command, f"--job_name={job}", f"--task_index={index}"])
                     for job, index in members], "chief-0", wires)

    return Peer(f"ParameterServerStrategy, {steps_per_call}", cast)


def pytorch(threads: int) -> Peer:
    """Returns PyTorch in one process with so many threads; 0 for all cores."""
    def cast(setting: Setting, folder: str) -> Cast:
        command = ["-m", "benchmarks.recommender.pytorch", f"--threads={threads}", f"--recording={folder}",
                   f"--params={setting.params}", *setting.common_flags()]
        return Cast([Task("worker-0", command)], "worker-0", Wires(0, 1))

    return Peer(f"PyTorch, {threads}", cast)


def no_communication() -> Peer:
    """Returns workers that train a model each."""
    def cast(setting: Setting, folder: str) -> Cast:
        counts = pathlib.Path(folder, "counts")
        counts.write_bytes(np.zeros(setting.num_workers, np.int64).tobytes())
        command = ["-m", "benchmarks.recommender.no_communication", f"--num_workers={setting.num_workers}",
                   f"--counts={counts}", f"--params={setting.params}", f"--recording={folder}",
                   *setting.common_flags()]
        tasks = [Task(f"worker-{index}", [*command, f"--task_index={index}"]) for index in range(setting.num_workers)]
        return Cast(tasks, "worker-0", Wires(0, setting.num_workers))

    return Peer("no communication", cast)


def counting(peer: Peer) -> Peer:
    """Returns a peer whose tasks log each tensor that they ask of another one; see figures.received_tensors."""
    def cast(setting: Setting, folder: str) -> Cast:
        made = peer.cast(setting, folder)
        return made._replace(tasks=[task._replace(environ=_COUNTING) for task in made.tasks])

    return Peer(peer.name, cast)


