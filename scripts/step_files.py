"""Lists the files that a reader passes from the flags to the applied update: those whose functions run in a worker.

    python scripts/step_files.py            the four lists; exits with 1 if one is longer than its limit
    python scripts/step_files.py sync       one of them

A chief trains with one ps, and Python's profiler notes each function of ps_train that it calls, in `parse_task`, which
reads the flags, and in `run_task`. Parts that the training does not need are left out of the table. A file is in the
list of a step if one of its functions

    is on the way     it is on the stack, from `run_task` on, when the step loop begins
    makes the step    it runs while the flags become settings and the graph is built, or reads the flags in config/
    takes the step    it runs in the step loop or, in sync, in the threads of the chief's updates

In the list of a training to its end is every file of which a function runs. What runs while a module is imported does
not count, nor the `__init__` of a folder, nor what checks the form of a value: a reader of one flag passes no other.
A step writes no summary.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any

REPO = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))
# Kind -> flags, the parts that it needs, and the longest list that is allowed.
KINDS = {
    "async": (["--model=tests.plugins.tiny", "--save_summaries_steps=0"], (), 30),
    "sync": (["--model=tests.plugins.tiny", "--save_summaries_steps=0", "--sync_replicas"], (), 36),
    "row": (["--model=tests.plugins.tiny_clicks", "--save_summaries_steps=0"], ("tables",), 42),
    "end": (["--model=tests.plugins.tiny"], (), 50),
}
_READS, _TRAINS = ("config/task.py", "parse_task"), ("tasks/run.py", "run_task")
_LOOPS = {("training/loop.py", "run"), ("updates/sync/runner.py", "_repeat")}
# What runs within these functions, and in the threads that they start, is of the training, or of the step.
_WITHIN = {
    "flags": {_READS}, "end": {_TRAINS},
    "step": {("tasks/setup.py", "worker_settings"), ("training/replica_graph.py", "build_train_graph"), *_LOOPS}}
_DEADLINE_SECS = 120.0


class Trace:
    """The files of which a function ran.

    Attributes:
      files: what of `_WITHIN` -> the files of the functions that ran within it.
    """

    def __init__(self) -> None:
        self.files: dict[str, set[str]] = {scope: set() for scope in _WITHIN}
        self._starts: dict[threading.Thread, tuple[set[str], dict[str, int]]] = {}  # its way, and what it is within
        self._thread = threading.local()

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        """Takes an event of `sys.setprofile`."""
        if event not in ("call", "return"):
            return
        depths, change = self._depths(), 1 if event == "call" else -1
        if frame.f_code.co_name == "<module>":
            depths["import"] += change
        file = _in_package(frame)
        if file is None or depths["import"]:
            return
        place = file, frame.f_code.co_name
        if place in _LOOPS and change == 1:
            self.files["step"].update(self._way(frame))
        for scope, entries in _WITHIN.items():
            depths[scope] += change * (place in entries)
            if depths[scope] > 0:
                self.files[scope].add(file)

    def _depths(self) -> dict[str, int]:
        if not hasattr(self._thread, "depths"):
            _, self._thread.depths = self._starts.get(threading.current_thread(), (set(), collections.Counter()))
        return self._thread.depths

    def _way(self, frame: Any) -> set[str]:
        """Returns the files on the stack, from `run_task` on, of this thread and of those that started it."""
        files, _ = self._starts.get(threading.current_thread(), (set(), {}))
        stack = []
        while frame is not None:
            stack.append(_in_package(frame))
            if (stack[-1], frame.f_code.co_name) == _TRAINS:
                return {*filter(None, stack)}
            frame = frame.f_back
        return {*files, *filter(None, stack)} if files else set()

    @contextlib.contextmanager
    def running(self):
        """Traces this thread, and all that are started while the body runs."""
        start = threading.Thread.start

        def traced_start(thread: threading.Thread) -> None:
            way = self._way(sys._getframe())  # noqa: SLF001 (there is no other)
            self._starts[thread] = way, collections.Counter(self._depths())
            start(thread)

        threading.Thread.start = traced_start
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            threading.Thread.start = start


def _in_package(frame: Any) -> str | None:
    prefix = f"{REPO}/ps_train/"
    file = frame.f_code.co_filename
    return file[len(prefix):] if file.startswith(prefix) else None


def trace(kind: str) -> None:
    """Trains as the chief, and prints the list; for a process of its own."""
    flags, parts, _ = KINDS[kind]
    from ps_train.parts import table  # noqa: PLC0415 (before the flags of the parts are read)

    table.TABLE = tuple(row for row in table.TABLE if row.name in parts)
    from ps_train import __main__  # noqa: PLC0415

    seen = Trace()
    with seen.running():
        code = __main__.main([*flags, *sys.argv[3:], "--job_name=worker"])
    files = seen.files["end" if kind == "end" else "step"]
    files |= {file for file in seen.files["flags"] if file.startswith("config/")}
    print("\n".join(sorted(file for file in files if not file.endswith("__init__.py"))), flush=True)
    os._exit(code)  # as `ps_train` does


def list_files(kind: str) -> list[str]:
    """Returns the files of a list."""
    flags, _, _ = KINDS[kind]
    from ps_train.launch.machines import hold_ports  # noqa: PLC0415

    held = hold_ports(2, 23000)
    ps, worker = (f"localhost:{port.getsockname()[1]}" for port in held)
    for port in held:
        port.close()
    environ = {**os.environ, "PYTHONPATH": str(REPO), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    with tempfile.TemporaryDirectory(prefix="ps_train-steps-") as folder:
        cluster = [f"--ps_hosts={ps}", f"--worker_hosts={worker}"]
        others = [*cluster, f"--dataset={flags[0].partition('=')[2]}", f"--train_dir={folder}/train",
                  "--train_steps=20", "--batch_size=8"]
        serving = subprocess.Popen([sys.executable, "-m", "ps_train", *flags, *others, "--job_name=ps"], cwd=REPO,
                                   env=environ, stderr=subprocess.DEVNULL)
        try:
            traced = subprocess.run([sys.executable, __file__, "--trace", kind, *others], cwd=REPO, env=environ,
                                    stdout=subprocess.PIPE, text=True, timeout=_DEADLINE_SECS, check=True)
        finally:
            serving.kill()
            serving.wait()
    return [line for line in traced.stdout.splitlines() if line.endswith(".py")]


def main() -> int:
    """Returns the exit code."""
    if sys.argv[1:2] == ["--trace"]:
        trace(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="which lists; all by default")
    is_within = True
    for kind in parser.parse_args().kinds or KINDS:
        files, limit = list_files(kind), KINDS[kind][2]
        print(f"{kind}: {len(files)} files (at most {limit})")
        for folder, group in _by_folder(files).items():
            print(f"    {folder:24} {' '.join(group)}")
        is_within = is_within and len(files) <= limit
    return 0 if is_within else 1


def _by_folder(files: list[str]) -> dict[str, list[str]]:
    folders = collections.defaultdict(list)
    for file in files:
        folder, _, name = file.rpartition("/")
        folders[folder or "."].append(name.removesuffix(".py"))
    return folders


if __name__ == "__main__":
    sys.exit(main())
