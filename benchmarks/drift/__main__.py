"""Event to served, and what drift costs: a live model beside a fixed export, on clicks whose ids change their meaning.

    python -m benchmarks.drift [--rate=2000] [--vocab=2000000] [--secs=60] [--after_secs=180]

`ps_train launch` with 1 ps trains DeepFM on files that grow (--follow), `ps_train publish` pushes what it changes, and
this process appends the events, predicts each before it is trained on, and follows with a LiveModel. First the table
gets half of all ids. Just before --secs a second model is loaded, which stays as it is; then all ids change their
meaning.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Callable

from benchmarks.drift.events import APPEND_SECS, Stream
from benchmarks.drift.serving import Figures, WatchedModel, Window, predict, window_of
from benchmarks.harness import machine, plot, proc
from ps_train import LiveModel
from ps_train.runtime import clock
from ps_train.storage import checkpoints

_WINDOW_SECS = 5.0
_END_SECS = 60.0  # for the last events, and for the end of a process
_START_SECS = 600.0
_POLL_SECS = 0.2


class FailedError(Exception):
    """A process has ended, or something does not come; the message says what."""


class Cluster:
    """The training and its publisher, as processes."""

    def __init__(self, folder: pathlib.Path, arguments: argparse.Namespace) -> None:
        """Starts them; the data must be there."""
        self.folder, self.train_dir, self.served = folder, folder / "train", folder / "served"
        self._processes: dict[str, subprocess.Popen] = {}
        self._start("launch", [
            "launch", "--num_ps=1", f"--num_workers={arguments.num_workers}", "--model=models.deepfm",
            "--dataset=data.criteo", f"--data_dir={folder}/data", "--params=eval_files=train*", "--dynamic_sharding",
            "--follow", "--batch_size=512", f"--train_dir={self.train_dir}", f"--log_dir={folder}/tasks",
            f"--save_model_secs={arguments.save_model_secs}", f"--save_delta_secs={arguments.save_delta_secs}",
            "--save_summaries_steps=0", f"--embedding_learning_rate={arguments.embedding_learning_rate}"])
        self._start("publish", ["publish", str(self.train_dir), f"--publish_dir={self.served}",
                                f"--publish_secs={arguments.publish_secs}"])

    def _start(self, name: str, arguments: Sequence[str]) -> None:
        with open(self.folder / f"{name}.log", "w", encoding="utf-8") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "ps_train", *arguments], stdout=log, stderr=subprocess.STDOUT,
                env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state")})

    def check(self) -> None:
        """Raises FailedError if one of them has ended."""
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise FailedError(f"{name} has ended with {process.returncode}; see {self.folder}/{name}.log")

    def cpu_secs(self) -> dict[str, float]:
        """Returns the CPU seconds of each process until now."""
        launcher = self._processes["launch"].pid
        children = pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text(encoding="utf-8").split()
        return {"publisher": proc.cpu_secs(self._processes["publish"].pid),
                "training": sum(proc.cpu_secs(int(child)) for child in children), "reader": time.process_time()}

    def end(self) -> None:
        """Ends both."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            process.wait(_END_SECS)


def _wait_for(condition: Callable[[], bool], cluster: Cluster, awaited: str) -> None:
    end_secs = time.monotonic() + _START_SECS
    while not condition():
        cluster.check()
        if time.monotonic() > end_secs:
            raise FailedError(f"{awaited} did not come in {_START_SECS:g} s")
        time.sleep(_POLL_SECS)


def _warm(cluster: Cluster, num_rows: int) -> WatchedModel:
    """Returns a live model that has all rows of the warm-up, after the first checkpoint that has them."""
    _wait_for((cluster.served / "CURRENT").exists, cluster, "the first model")
    model = WatchedModel(str(cluster.served))

    def is_warm() -> bool:
        model.update()
        return model.status()["used"][0] >= num_rows

    _wait_for(is_warm, cluster, "the warm table")
    # Until the next full checkpoint, each delta has all rows of the warm-up.
    step = model.status()["step"]
    _wait_for(lambda: max(map(checkpoints.step_in_name, checkpoints.paths(str(cluster.train_dir)))) >= step, cluster,
              "a checkpoint")
    return model


def main() -> int:
    """Runs the tool."""
    arguments = _parser().parse_args()
    folder = pathlib.Path(arguments.work_dir)
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "data").mkdir(parents=True)
    stream = Stream(str(folder / "data"), arguments.vocab)
    num_rows = stream.warm_up()
    print(f"the table is given {num_rows:,} rows", flush=True)
    cluster = Cluster(folder, arguments)
    try:
        with _warm(cluster, int(0.99 * num_rows)) as model:
            _report(folder, arguments, _run(cluster, model, stream, arguments))
    except FailedError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        cluster.end()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drift", description=__doc__.split("\n")[0])
    parser.add_argument("--work_dir", default="/tmp/ps_train-drift", help="is emptied (default %(default)s)")
    parser.add_argument("--rate", type=int, default=2000, help="events a second (default %(default)s)")
    parser.add_argument("--vocab", type=int, default=2_000_000, help="ids; half of them have rows at the start")
    parser.add_argument("--secs", type=float, default=60.0, help="before the drift (default %(default)s)")
    parser.add_argument("--after_secs", type=float, default=180.0, help="after it (default %(default)s)")
    parser.add_argument("--num_workers", type=int, default=2, help="(default %(default)s)")
    parser.add_argument("--save_model_secs", type=int, default=60, help="of ps_train (default %(default)s)")
    for name, default in (("save_delta_secs", 1.0), ("publish_secs", 0.5),
                          ("embedding_learning_rate", 0.05)):
        parser.add_argument(f"--{name}", type=float, default=default, help="of ps_train (default %(default)s)")
    return parser


def _run(cluster: Cluster, model: WatchedModel, stream: Stream, arguments: argparse.Namespace) -> Figures:
    """Appends events until the end; returns what was seen."""
    model.follow(_POLL_SECS)
    num_before, num_after = (round(secs / APPEND_SECS) for secs in (arguments.secs, arguments.after_secs))
    per_window, window, windows = round(_WINDOW_SECS / APPEND_SECS), [], []
    fixed, loading = model, None
    begin_secs, cpu_before = time.time(), cluster.cpu_secs()
    for number in range(num_before + num_after):
        if number == max(0, num_before - per_window):
            loading = clock.start_call(lambda: LiveModel(str(cluster.served)), "fixed model")
        if number == num_before:
            loading.join()
            fixed = loading.result()
            stream.drift()
        append = stream.append(number, round(arguments.rate * APPEND_SECS))
        model.await_id(append.probe, append.secs)
        window.append((append, *(predict(one, append) for one in (model, fixed))))
        if len(window) == per_window:
            windows.append(window_of(window, append.secs - begin_secs))
            print(f"{windows[-1].secs:.0f} s: AUC {windows[-1].live:.3f}, fixed {windows[-1].fixed:.3f}, best "
                  f"{windows[-1].best:.3f}; {model.num_awaited} of {number + 1} probes are not served", flush=True)
            window = []
        time.sleep(max(0.0, begin_secs + (number + 1) * APPEND_SECS - time.time()))
    late_secs = time.time() - begin_secs - (num_before + num_after) * APPEND_SECS
    cpu = {name: secs - cpu_before[name] for name, secs in cluster.cpu_secs().items()}
    _wait_for(lambda: not model.num_awaited, cluster, "the last event")
    fixed.close()
    return Figures(windows, sorted((secs - begin_secs, age) for secs, age in model.served), num_before * APPEND_SECS,
                   {name: secs / (time.time() - begin_secs) for name, secs in cpu.items()}, late_secs,
                   len(model.loads), model.status()["used"][0])


def _report(folder: pathlib.Path, arguments: argparse.Namespace, figures: Figures) -> None:
    """Writes the table, the figures and the plot."""
    about = ", ".join(f"{key} {value}" for key, value in machine.describe().items())
    text = "\n\n".join([
        "# Fresh rows", f"{about}.", f"{arguments.rate:,} events/s, 1 ps, {arguments.num_workers} workers; "
        f"{figures.num_rows:,} rows at the end.", *figures.lines()]) + "\n"
    (folder / "drift.md").write_text(text, encoding="utf-8")
    for name, fields, rows in (("auc", Window._fields, figures.windows), ("served", ("secs", "age_secs"),
                                                                            figures.served)):
        with open(folder / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([fields, *rows])
    if problem := plot.auc_over_time(figures.windows, figures.drift_secs, str(folder / "drift.svg")):
        print(f"no plot: {problem}")
    print(f"\n{text}\nwritten to {folder}")


if __name__ == "__main__":
    sys.exit(main())
