"""Computes cases of TensorFlow 1 by TensorFlow 1.15 itself and by ps_train, and compares the values.

    python3.7 -m venv tf115 && tf115/bin/pip install tensorflow==1.15.5 'numpy<1.19' 'protobuf<3.21' 'h5py<3'
    python -m benchmarks.parity_with_1_15 --python=tf115/bin/python [layers. recurrent.GRUCell ...]
    python -m benchmarks.parity_with_1_15 --python=tf115/bin/python --jobs

It prints a line for each case that differs, and how many are the same: the names and shapes of variables, the sizes of
collections, and all values. With --jobs it trains jobs by TensorFlow 1.15, lets ps_train continue from the checkpoint,
and TensorFlow 1.15 again from that of ps_train, and compares the metrics with those of TensorFlow 1.15 alone. It exits
with 1 if anything differs. docs/compatibility.md and docs/migrate.md say what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tempfile

import numpy as np

_REPO = pathlib.Path(__file__).resolve().parents[1]
_SCRIPT = _REPO / "benchmarks/parity/values.py"
_JOB = _REPO / "benchmarks/parity/jobs.py"
_JOBS = ("dnn", "wide_deep", "linear", "regressor", "model_fn", "keras", "supervisor", "monitored")
_STEPS = 30
_PS_TRAIN = [sys.executable, "-m", "ps_train", "run"]
_DEADLINE_SECS = 900
_JOB_TOLERANCE = 1e-3  # relative; of metrics after dozens of steps
_TOLERANCE = {"rtol": 2e-4, "atol": 2e-5, "equal_nan": True}


def values_by(command: list[str], prefixes: list[str]) -> dict:
    """Returns the values of all cases, as a program computes them that begins with `command`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "values")
        _run([*command, str(_SCRIPT), path, *prefixes], folder)
        with open(path, "rb") as file:
            return pickle.load(file)


def _run(command: list[str], folder: str) -> str:
    """Returns what a program prints; raises CalledProcessError if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(_REPO), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, env=environment, cwd=folder, check=True, timeout=_DEADLINE_SECS, text=True,
                          stdout=subprocess.PIPE).stdout


def metrics_of(kind: str, python: str) -> list[tuple[str, dict, dict]]:
    """Returns (what, metrics of TensorFlow 1.15 alone, metrics of the job that moves to ps_train and back)."""
    def train(command: list[str], name: str) -> dict:
        output = _run([*command, str(_JOB), kind, name, str(_STEPS)], folder)
        return json.loads(output.strip().splitlines()[-1])
    with tempfile.TemporaryDirectory() as folder:
        train([python], "stays")
        shutil.copytree(os.path.join(folder, "stays"), os.path.join(folder, "moves"))
        record = pathlib.Path(folder, "moves/checkpoint")
        record.write_text(record.read_text().replace(os.path.join(folder, "stays") + "/", ""))
        return [(what, train([python], "stays"), train(command, "moves"))
                for what, command in (("ps_train continues", _PS_TRAIN), ("1.15 continues", [python]))]


def compare_jobs(python: str) -> int:
    """Prints the metrics of all jobs; returns how many are not the same."""
    found = 0
    for kind in _JOBS:
        for what, alone, moved in metrics_of(kind, python):
            is_same = alone.keys() == moved.keys() and all(
                np.isclose(alone[name], moved[name], rtol=_JOB_TOLERANCE, atol=1e-6) for name in alone)
            found += not is_same
            print(f"{kind}, {what}: step {moved['global_step']:g}, loss {alone['loss']:.6f} and {moved['loss']:.6f}"
                  f"{'' if is_same else f'; not the same: {alone} and {moved}'}")
    return found


def differences(old: dict | str, new: dict | str) -> list[str]:
    """Returns how the values of a case differ; a failure is text."""
    if isinstance(old, str) or isinstance(new, str):
        return [f"1.15: {old if isinstance(old, str) else 'runs'}; ps_train: {new if isinstance(new, str) else 'runs'}"]
    found = [f"{what}: {old[what]} and {new[what]}" for what in ("variables", "trainable", "collections", "paths")
             if old[what] != new[what]]
    if found:
        return found
    return [f"{path or 'value'}, run {run}: {first.ravel()[:4]} {first.shape} and {second.ravel()[:4]} {second.shape}"
            for run, (before, after) in enumerate(zip(old["values"], new["values"]), 1)
            for path, first, second in zip(old["paths"], before, after) if not _is_same(first, second)]


def _is_same(first: np.ndarray, second: np.ndarray) -> bool:
    if first.dtype.kind != second.dtype.kind or first.shape != second.shape:
        return False
    return np.allclose(first, second, **_TOLERANCE) if first.dtype.kind == "f" else first.tolist() == second.tolist()


def main() -> int:
    """Prints the report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with TensorFlow 1.15")
    parser.add_argument("--jobs", action="store_true", help="jobs that move to ps_train and back")
    parser.add_argument("prefixes", nargs="*", help="only the cases that begin so")
    arguments = parser.parse_args()
    python = os.path.abspath(arguments.python)
    if arguments.jobs:
        return 1 if compare_jobs(python) else 0
    old, new = values_by([python], arguments.prefixes), values_by(_PS_TRAIN, arguments.prefixes)
    if not old:
        parser.error(f"no case begins with {' or '.join(arguments.prefixes)}")
    differing = {name: found for name in old if (found := differences(old[name], new[name]))}
    for name, found in differing.items():
        print(f"{name}: {'; '.join(found)[:400]}")
    print(f"{len(old) - len(differing)} of {len(old)} cases are the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
