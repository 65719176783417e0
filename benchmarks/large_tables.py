"""What a large embedding table costs: seconds until it trains, memory while it is saved, seconds until it is restored.

    python -m benchmarks.large_tables [--num_rows=100000000] [--dim=8] [--rule=sgd] [--dynamic] [--own_folders]
        [--work_dir=DIR] [--train_dir=s3://bucket/run]

A cluster of 2 ps and 1 worker touches every row once, saves and evaluates a sample of the rows, whose values follow
from their ids. Then a cluster of 3 ps restores the checkpoint, trains for a step and evaluates the same sample. With
--own_folders no task reaches the folder of another one, so all rows pass through the chief. With the URL of a new
folder in a store, the second cluster has nothing but the store.

    start      from the start of the processes to the first step, the import of TensorFlow included
    train      from there to the last step
    save       from the last step to a checkpoint that was read back
    upload     from there to the checkpoint in the store
    table      memory of the rows of one ps: values, slots, marks, and of a dynamic table ids and index
    memory     of a task just before the save
    peak       of a task during the save, above `memory`
    restore    from the start of the processes to the first step
    error      mean difference of a sampled value from what it must be
"""

from __future__ import annotations

import argparse
import pathlib
import re
import shutil
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from benchmarks.harness import proc
from ps_train.config.folders import local_folder
from tests.processes import ProcessGroup, TaskCluster

CHANGES = {"sgd": 1.0, "adagrad": 1.1**-0.5, "rowwise_adagrad": 1.1**-0.5}  # of a value by one gradient of 1, at rate 1
_SLOTS = {"sgd": lambda dim: 0, "adagrad": lambda dim: dim, "rowwise_adagrad": lambda dim: 1}
_DEADLINE_SECS = 1800.0
_POLL_SECS = 0.02
_ERROR = re.compile(r"error[ =:]+([\d.e+-]+)")


class TaskMemory(NamedTuple):
    """Memory of a task in MB: before the save, and the most during it."""

    before_mb: float
    peak_mb: float


class Figures(NamedTuple):
    """What a run of a cluster took."""

    start_secs: float
    train_secs: float
    save_secs: float
    upload_secs: float
    memory: dict[str, TaskMemory]
    error: float


class Run:
    """A cluster that trains a table up to a step, from its start to its end."""

    def __init__(
        self, folder: pathlib.Path, name: str, num_ps: int, flags: list[str], options: argparse.Namespace
    ) -> None:
        """Prepares; nothing is started yet."""
        self._folder, self._own_folders, self._url = folder, options.own_folders, options.train_dir
        self._group = ProcessGroup(folder / f"{name}_logs")
        self._cluster, self._flags = TaskCluster(num_ps, 1), flags
        self._memory: dict[str, TaskMemory] = {}

    def measure(self) -> Figures:
        """Runs it."""
        with self._group:
            begin_secs = time.monotonic()
            pids = {}
            for job, index in self._cluster.tasks():
                name = f"{job}-{index}"
                own_folder = self._folder / (name if self._own_folders else "")
                own_folder.mkdir(exist_ok=True)
                pids[name] = self._group.start(
                    name, [*self._cluster.flags(job, index), *self._flags], cwd=own_folder, is_exec=True).pid
            stepped_secs = self._wait_for("  loss ")
            trained_secs = self._wait_for("finishing and saving")
            saved = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(pids, saved))
            watcher.start()
            try:
                saved_secs = self._wait_for("saved ")
                uploaded_secs = self._wait_for(f"uploaded {self._url}/") if self._url else saved_secs
            finally:
                saved.set()
                watcher.join()
            codes = self._group.wait(_DEADLINE_SECS)
            if any(codes.values()):
                sys.exit(f"a task failed: {codes}\n{self._group.logs()}")
            error = float(_ERROR.search(self._group.log("worker-0"))[1])
        return Figures(stepped_secs - begin_secs, trained_secs - stepped_secs, saved_secs - trained_secs,
                       uploaded_secs - saved_secs, self._memory, error)

    def _wait_for(self, text: str) -> float:
        """Returns when the chief's log has the text."""
        try:
            self._group.wait_for_line("worker-0", text, _DEADLINE_SECS)
        except AssertionError as error:
            sys.exit(f"{error}\n{self._group.logs()}")
        return time.monotonic()

    def _watch(self, pids: dict[str, int], saved: threading.Event) -> None:
        """Notes the memory of every task, now and at most, until the checkpoint is saved."""
        before = {name: proc.memory_mb(pid) for name, pid in pids.items()}
        for pid in pids.values():
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")  # sets the peak to the present size, proc(5)
        while True:
            is_last = saved.wait(_POLL_SECS)
            # A task that frees memory between the two reads has a peak below what it had before.
            self._memory = {name: TaskMemory(before[name], max(before[name], proc.peak_memory_mb(pid)))
                            for name, pid in pids.items()}
            if is_last:
                return


def row_bytes(dim: int, rule: str, *, is_dynamic: bool) -> int:
    """Returns the bytes of a row that does not depend on others: value, slots and mark; of a dynamic one, its id."""
    return 4 * (dim + _SLOTS[rule](dim)) + 4 + (8 if is_dynamic else 0)


def table(options: argparse.Namespace, first: Figures, restored: Figures) -> str:
    """Returns the figures as a table."""
    per_ps_mb = options.num_rows * row_bytes(options.dim, options.rule, is_dynamic=options.dynamic) / 2 / 2**20
    kind = "dynamic" if options.dynamic else "fixed"
    lines = [
        "| table | start | train | save | upload | error | restore on 3 ps | save | error |", "|" + "---|" * 9,
        f"| {kind}, {options.num_rows:,} rows x {options.dim}, {options.rule} | {first.start_secs:.1f} s | "
        f"{first.train_secs:.0f} s | {first.save_secs:.1f} s | "
        f"{first.upload_secs:.1f} s | {first.error:.1g} | {restored.start_secs:.1f} s | "
        f"{restored.save_secs:.1f} s | {restored.error:.1g} |",
        "", f"Rows of one of 2 ps: {per_ps_mb:.0f} MB", "", "| task | memory | peak |", "|---|---|---|"]
    for number, figures in ((2, first), (3, restored)):
        lines += [f"| {name} of {number} ps | {own.before_mb:.0f} MB | + {own.peak_mb - own.before_mb:.0f} MB |"
                  for name, own in figures.memory.items()]
    return "\n".join(lines)


def measure(options: argparse.Namespace, folder: pathlib.Path) -> str:
    """Trains and restores, and returns the table."""
    steps = -(-options.num_rows // options.batch_size)
    params = {"num_rows": options.num_rows, "dim": options.dim, "is_dynamic": options.dynamic,
              "num_sampled": min(options.num_sampled, options.num_rows // 2),
              "expected_change": CHANGES[options.rule]}
    flags = ["--model=benchmarks.touched_rows", "--dataset=benchmarks.touched_rows",
             f"--train_dir={options.train_dir or 'train'}",
             "--params=" + ",".join(f"{name}={value}" for name, value in params.items()), "--log_steps=1",
             f"--batch_size={options.batch_size}", f"--embedding_optimizer={options.rule}", "--learning_rate=1",
             "--save_model_secs=0", "--save_summaries_steps=0", "--evaluate_with=workers", "--save_timeout_secs=900",
             "--start_timeout_secs=900", "--step_timeout_secs=900"]
    first = Run(folder, "first", 2, [*flags, f"--train_steps={steps}"], options).measure()
    print(first, file=sys.stderr, flush=True)
    if options.train_dir:
        shutil.rmtree(local_folder(options.train_dir))
    # One more step begins a second round: its rows are not in the sample.
    flags += [f"--train_steps={steps + 1}", "--keep_checkpoint_max=1"]
    restored = Run(folder, "restored", 3, flags, options).measure()
    return table(options, first, restored)


def main(argv: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_tables", description=__doc__.partition("\n")[0])
    parser.add_argument("--num_rows", type=int, default=100_000_000)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--rule", choices=CHANGES, default="sgd")
    parser.add_argument("--dynamic", action="store_true")
    parser.add_argument("--own_folders", action="store_true", help="without a shared disk")
    parser.add_argument("--train_dir", default="", help="URL of a new folder in a store")
    parser.add_argument("--batch_size", type=int, default=250_000, help="rows that a step touches")
    parser.add_argument("--num_sampled", type=int, default=10_000, help="rows whose values are checked")
    parser.add_argument("--work_dir", type=pathlib.Path, help="for checkpoints and logs; by default a temporary folder")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=options.work_dir) as folder:
        print(measure(options, pathlib.Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
