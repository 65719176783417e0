"""What a live model costs beside a plain export of the same checkpoint: memory, loading, lookups, and its pushes.

    python -m benchmarks.live_models [--num_rows=1000000] [--dim=16] [--pushes=49]

A dynamic table is trained until each row was touched once, and exported twice. Each export is loaded in a process of
its own, in a session. Its memory is that above the same process before it loads the model, as the kernel counts it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from concurrent import futures
from typing import Any

import numpy as np

_BATCH_SIZE, _NUM_LOOKUPS, _LOOKUP_IDS = 10_000, 2000, 512
_PUSH_ROWS, _PUSH_SECS = 5000, 0.125
_PLUGIN = "benchmarks.touched_rows"


def make_exports(folder: pathlib.Path, num_rows: int, dim: int) -> dict[str, str]:
    """Trains, and returns kind -> the folder of a SavedModel."""
    def run(*words: str) -> None:
        subprocess.run([sys.executable, "-m", "ps_train", *words], check=True, stdout=subprocess.DEVNULL)

    run("launch", "--num_ps=1", "--num_workers=1", f"--model={_PLUGIN}", f"--dataset={_PLUGIN}",
        f"--params=num_rows={num_rows},dim={dim},is_dynamic=True", f"--batch_size={_BATCH_SIZE}",
        "--embedding_optimizer=sgd", f"--train_steps={-(-num_rows // _BATCH_SIZE)}", f"--train_dir={folder}/train",
        "--save_summaries_steps=0")
    exports = {}
    for kind, flags in (("plain export", ()), ("live model", ("--live",))):
        export_dir = folder / kind.replace(" ", "_")
        run("export", f"--train_dir={folder}/train", f"--export_dir={export_dir}", *flags)
        exports[kind] = str(next(export_dir.iterdir()))
    return exports


class Loaded:
    """A SavedModel in a session of this process."""

    def __init__(self, folder: str) -> None:
        """Loads it."""
        import tensorflow.compat.v1 as tf  # noqa: PLC0415 (the process that makes the exports does not need it)

        self._session = tf.Session(graph=tf.Graph())
        self.base_bytes = _memory("VmRSS")
        start_secs = time.perf_counter()
        with self._session.graph.as_default():
            self._signatures = tf.saved_model.load(self._session, ["serve"], folder).signature_def
        self.load_secs = time.perf_counter() - start_secs

    def call(self, key: str, **inputs: Any) -> dict[str, Any]:
        """Returns the outputs of a signature."""
        signature = self._signatures[key]
        return self._session.run({name: info.name for name, info in signature.outputs.items()},
                                 {signature.inputs[name].name: value for name, value in inputs.items()})

    def lookup_ms(self, num_rows: int, random: np.random.Generator) -> list[float]:
        """Returns the median of the milliseconds of a lookup, and their 99 %."""
        times = []
        for _ in range(_NUM_LOOKUPS):
            ids, start_secs = _ids(random.integers(num_rows, size=_LOOKUP_IDS)), time.perf_counter()
            self.call("serving_default", ids=ids)
            times.append(1000 * (time.perf_counter() - start_secs))
        return np.percentile(times, [50, 99]).tolist()

    def push(self, number: int, num_rows: int, dim: int, random: np.random.Generator) -> float:
        """Changes rows and commits; returns the milliseconds."""
        dense = np.zeros([int(self.call("live_status", probe=0)["dense_bytes"])], np.uint8)
        ids, start_secs = _ids(random.choice(num_rows, _PUSH_ROWS, replace=False)), time.perf_counter()
        self.call("live_rows/items", number=number, ids=ids, rows=np.ones([_PUSH_ROWS, dim], np.float32),
                  dropped=np.zeros([0], np.int64))
        self.call("live_commit", number=number, previous=number - 1, dense=dense, step=number)
        return 1000 * (time.perf_counter() - start_secs)


def measure(folder: str, num_rows: int, dim: int, num_pushes: int) -> dict[str, Any]:
    """Returns what a model costs in this process, for JSON; without pushes it is a plain export."""
    model, random = Loaded(folder), np.random.default_rng(0)
    found = {"load_secs": model.load_secs, "loaded_bytes": _memory("VmRSS") - model.base_bytes,
             "peak_bytes": _memory("VmHWM") - model.base_bytes, "lookup_ms": model.lookup_ms(num_rows, random)}
    if num_pushes:
        def push() -> list[float]:
            of_thread, push_ms = np.random.default_rng(1), []
            for number in range(1, num_pushes + 1):
                push_ms.append(model.push(number, num_rows, dim, of_thread))
                time.sleep(_PUSH_SECS)
            return push_ms

        with futures.ThreadPoolExecutor(1) as pool:
            pushing = pool.submit(push)
            found["lookup_during_pushes_ms"] = model.lookup_ms(num_rows, random)
            found["push_ms"] = float(np.median(pushing.result()))
    return {**found, "served_bytes": _memory("VmRSS") - model.base_bytes}


def _ids(rows: np.ndarray) -> np.ndarray:
    """Returns what `touched_rows.ids_of` makes of row numbers in a dynamic table."""
    return rows * np.int64(0x1E3779B97F4A7C15) & np.int64(2**62 - 1)


def _memory(name: str) -> int:
    """Returns a number of bytes of this process from Linux' /proc."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1])


def main(argv: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.live_models", description=__doc__.partition("\n")[0])
    parser.add_argument("--num_rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=16)
    parser.add_argument("--pushes", type=int, default=49)
    parser.add_argument("--load", help="measure this SavedModel in this process")
    options = parser.parse_args(argv)
    if options.load:
        print(json.dumps(measure(options.load, options.num_rows, options.dim, options.pushes)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind, export in make_exports(pathlib.Path(folder), options.num_rows, options.dim).items():
            num_pushes = options.pushes if kind == "live model" else 0
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.live_models", f"--load={export}", f"--num_rows={options.num_rows}",
                 f"--dim={options.dim}", f"--pushes={num_pushes}"], check=True, stdout=subprocess.PIPE, text=True)
            print(kind, done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
