"""Who is measured: the modes of ps_train, each a list of flags, and its peers."""

from __future__ import annotations

import os
import pathlib

import numpy as np

from benchmarks.harness import examples
from benchmarks.harness.trial import Cast, Peer, Setting, Task
from benchmarks.harness.wires import Wires

CLASSIC, DDP = "classic loop", "DDP (gloo)"
LIMIT, LIMIT_1_THREAD = "no communication", "no communication, 1 thread"
ASYNC, AT_ONCE, SYNC = "ps_train", "ps_train 8 at once", "ps_train sync"
K5, K20, K20_BFLOAT16 = "ps_train K=5", "ps_train K=20", "ps_train K=20 bfloat16"

# A mode of ps_train: name -> flags. What this version of ps_train does not know yet is skipped with its own word.
MODES: dict[str, tuple[str, ...]] = {
    ASYNC: (),
    AT_ONCE: ("--steps_per_execution=8",),
    f"{ASYNC} bfloat16": ("--wire_dtype=bfloat16",),
    f"{ASYNC} staleness 4": ("--staleness_bound=4",),
    SYNC: ("--sync_replicas",),
    K5: ("--communication_period=5",),
    K20: ("--communication_period=20",),
    K20_BFLOAT16: ("--communication_period=20", "--wire_dtype=bfloat16"),
    f"{SYNC} K=5": ("--sync_replicas", "--communication_period=5"),
    f"{SYNC} K=20": ("--sync_replicas", "--communication_period=20"),
}


def ps_train(name: str) -> Peer:
    """Returns a mode of ps_train as a peer."""
    flags = MODES[name]

    def cast(setting: Setting, folder: str) -> Cast:
        given = [*examples.ps_train_flags(setting.data_dir), f"--learning_rate={setting.learning_rate}",
                 f"--batch_size={setting.batch_size}", "--save_summaries_steps=0", *flags]  # as no peer writes any
        if setting.seed is not None:
            given.append(f"--seed={setting.seed}")
        batches_per_step = setting.num_workers if "--sync_replicas" in flags else 1
        return with_ps(setting, folder, ["-m", "ps_train", *given], batches_per_step, ["--resource_variables"])

    return Peer(name, cast)


def _classic(setting: Setting, folder: str) -> Cast:
    return with_ps(setting, folder, ["-m", "benchmarks.classic", *setting.common_flags()], 1, [])


def with_ps(
    setting: Setting, folder: str, command: list[str], batches_per_step: int, observing: list[str]
) -> Cast:
    """Returns a cluster whose tasks are told who they are in the classic way; with an observer of ps 0, if wanted."""
    wires = Wires(setting.num_ps, setting.num_workers, setting.link)
    train_steps = 10**9 if setting.train_batches is None else setting.train_batches // batches_per_step
    model = [f"--model={setting.model}", f"--params={setting.params}"]
    given = [*command, *model, f"--optimizer={setting.optimizer}", f"--train_steps={train_steps}",
             f"--train_dir={os.path.join(folder, 'train')}"]
    tasks = []
    for job, count in (("ps", setting.num_ps), ("worker", setting.num_workers)):
        for index in range(count):
            hosts = wires.hosts(job, index)
            tasks.append(Task(f"{job}-{index}", [
                *given, f"--ps_hosts={hosts['ps']}", f"--worker_hosts={hosts['worker']}", f"--job_name={job}",
                f"--task_index={index}"]))
    if setting.train_batches is not None:
        return Cast(tasks, "worker-0", wires)
    return Cast(tasks, "observer", wires, Task("observer", [
        "-m", "benchmarks.harness.observer", f"--ps_host={wires.ps[0]}", f"--recording={folder}", *model,
        f"--batches_per_step={batches_per_step}", *setting.common_flags(), *observing,
        *(["--snapshots"] if setting.has_accuracy else [])]))


def _parameter_server_strategy(steps_per_call: int) -> Peer:
    def cast(setting: Setting, folder: str) -> Cast:
        wires = Wires(1, setting.num_workers + 1)
        *workers, chief = wires.workers
        command = ["-m", "benchmarks.parameter_server_strategy", f"--ps_hosts={wires.ps[0]}",
                   f"--worker_hosts={','.join(workers)}", f"--chief_host={chief}", f"--recording={folder}",
                   f"--steps_per_call={steps_per_call}", *setting.common_flags()]
        members = [("ps", 0), *(("worker", index) for index in range(len(workers))), ("chief", 0)]
        tasks = [Task(f"{job}-{index}", [*command, f"--job_name={job}", f"--task_index={index}"])
                 for job, index in members]
        return Cast(tasks, "chief-0", wires)

    return Peer(f"ParameterServerStrategy, {steps_per_call} a closure", cast)


def _multi_worker_mirrored(steps_per_call: int) -> Peer:
    def cast(setting: Setting, folder: str) -> Cast:
        wires = Wires(0, setting.num_workers)
        return _alike(wires, [
            "-m", "benchmarks.multi_worker_mirrored", f"--worker_hosts={','.join(wires.workers)}",
            f"--steps_per_call={steps_per_call}", f"--recording={folder}", *setting.common_flags()])

    return Peer(f"MultiWorkerMirroredStrategy, {steps_per_call} a call", cast)


def _ddp(setting: Setting, folder: str) -> Cast:
    wires = Wires(0, setting.num_workers)
    return _alike(wires, ["-m", "benchmarks.ddp", f"--address={wires.workers[0]}", f"--recording={folder}",
                          f"--num_workers={setting.num_workers}", *setting.common_flags()])


def _no_communication(name: str, threads: int) -> Peer:
    def cast(setting: Setting, folder: str) -> Cast:
        counts = pathlib.Path(folder, "counts")
        counts.write_bytes(np.zeros(setting.num_workers, np.int64).tobytes())
        return _alike(Wires(0, setting.num_workers), [
            "-m", "benchmarks.no_communication", f"--num_workers={setting.num_workers}", f"--counts={counts}",
            f"--threads={threads}", f"--model={setting.model}", f"--params={setting.params}", f"--recording={folder}",
            *setting.common_flags()])

    return Peer(name, cast)


def _alike(wires: Wires, command: list[str]) -> Cast:
    """Returns workers only, which differ in their number, and of which the first one records."""
    tasks = [Task(f"worker-{index}", [*command, f"--task_index={index}"]) for index in range(len(wires.workers))]
    return Cast(tasks, "worker-0", wires)


PEERS: dict[str, Peer] = {peer.name: peer for peer in [
    Peer(CLASSIC, _classic),
    *map(ps_train, MODES),
    *map(_parameter_server_strategy, (1, 25)),
    *map(_multi_worker_mirrored, (1, 25)),
    Peer(DDP, _ddp),
    _no_communication(LIMIT, 0),
    _no_communication(LIMIT_1_THREAD, 1),
]}
