"""Computes cases of TensorFlow 1 by TensorFlow 1.15 itself and by ps_train, and compares the values.

    python3.7 -m venv tf115 && tf115/bin/pip install tensorflow==1.15.5 'numpy<1.19' 'protobuf<3.21' 'h5py<3'
    python -m benchmarks.parity_with_1_15 --python=tf115/bin/python [layers. recurrent.GRUCell ...]

It prints a line for each case that differs, and how many are the same: the names and shapes of variables, the sizes of
collections, and all values. It exits with 1 if a case differs. docs/compatibility.md says what came out.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import numpy as np

_REPO = pathlib.Path(__file__).resolve().parents[1]
_SCRIPT = _REPO / "benchmarks/parity/values.py"
_DEADLINE_SECS = 900
_TOLERANCE = {"rtol": 2e-4, "atol": 2e-5, "equal_nan": True}


def values_by(command: list[str], prefixes: list[str]) -> dict:
    """Returns the values of all cases, as a program computes them that begins with `command`."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "values")
        environment = {**os.environ, "PYTHONPATH": str(_REPO), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.run([*command, str(_SCRIPT), path, *prefixes], env=environment, cwd=folder, check=True,
                       timeout=_DEADLINE_SECS)
        with open(path, "rb") as file:
            return pickle.load(file)


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
    if first.dtype.kind not in "fiu":
        return first.tolist() == second.tolist()
    return first.shape == second.shape and np.allclose(first, second, **_TOLERANCE)


def main() -> int:
    """Prints the report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a Python with TensorFlow 1.15")
    parser.add_argument("prefixes", nargs="*", help="only the cases that begin so")
    arguments = parser.parse_args()
    old = values_by([os.path.abspath(arguments.python)], arguments.prefixes)
    new = values_by([sys.executable, "-m", "ps_train", "run"], arguments.prefixes)
    differing = {name: found for name in old if (found := differences(old[name], new[name]))}
    for name, found in differing.items():
        print(f"{name}: {'; '.join(found)[:400]}")
    print(f"{len(old) - len(differing)} of {len(old)} cases are the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
