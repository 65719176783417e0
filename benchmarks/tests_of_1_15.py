"""TensorFlow 1.15's own tests under `ps_train run`: how many of them pass on today's TensorFlow.

    python -m benchmarks.tests_of_1_15 --source=DIR                     the modules of tf.contrib below, and tf.train
    python -m benchmarks.tests_of_1_15 --source=DIR --only=contrib/crf,contrib/rnn/python/kernel_tests/rnn_test

DIR is a checkout of github.com/tensorflow/tensorflow at v1.15.5, which is not part of this project. Each file runs in a
process and a folder of its own; `--work` keeps the logs. Some files need SciPy and portpicker. Tests that ask for
private functions, or for variables that are no resources, fail by design: docs/compatibility.md has the reasons.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from ps_train.launch.process import killed_with_parent

REPO = pathlib.Path(__file__).resolve().parents[1]
_PACKAGES = ("crf", "data", "feature_column", "framework", "image", "layers", "learn", "legacy_seq2seq", "lookup",
             "losses", "metrics", "nn", "opt", "optimizer_v2", "rnn", "seq2seq", "slim", "sparsemax", "training")
FOLDERS = (*(f"contrib/{package}" for package in _PACKAGES), "python/training", "python/layers")
_DEADLINE_SECS = 300
_RESULT = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w+\.\w+)$", re.MULTILINE)


class Result(NamedTuple):
    """Of a file: its path, the tests that passed and failed, and the exit code."""

    file: str
    passed: frozenset[str]
    failed: frozenset[str]
    exit_code: int


def main() -> int:
    """Runs the tool; returns 1 if no test has run."""
    arguments = _parse()
    source = pathlib.Path(arguments.source) / "tensorflow"
    files = sorted(_files(source, arguments.only.split(",") if arguments.only else FOLDERS))
    work = pathlib.Path(arguments.work or tempfile.mkdtemp())
    results = []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for result in pool.map(lambda file: _run(source, file, work), files):
            results.append(result)
            print(f"{len(result.passed):4} passed {len(result.failed):4} failed  {result.file}"
                  f"{'' if result.passed or result.failed else f': exits with {result.exit_code}'}", flush=True)
    print(_table(results))
    return 0 if any(result.passed for result in results) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="checkout of TensorFlow 1.15")
    parser.add_argument("--only", default="", help="folders or files below tensorflow/, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time")
    parser.add_argument("--work", default="", help="folder of the logs; by default a new one")
    return parser.parse_args()


def _files(source: pathlib.Path, chosen: tuple[str, ...] | list[str]) -> Iterator[pathlib.Path]:
    for name in chosen:
        path = source / name
        if path.is_dir():
            yield from path.rglob("*_test.py")
        else:
            yield path.with_suffix(".py")


def _run(source: pathlib.Path, file: pathlib.Path, work: pathlib.Path) -> Result:
    name = file.relative_to(source).with_suffix("").as_posix()
    folder = work / name.replace("/", ".")
    folder.mkdir(parents=True, exist_ok=True)
    # Today's decorator has no such argument, and always makes the test anew.
    script = folder / file.name
    script.write_text(file.read_text(encoding="utf-8").replace("(reset_test=True)", "()"), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPO), os.environ.get("PYTHONPATH", ""))),
                   "TEST_TMPDIR": str(folder / "tmp"), "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    (folder / "tmp").mkdir(exist_ok=True)
    with open(folder / "log", "w+", encoding="utf-8", errors="replace") as log:
        try:
            exit_code = subprocess.run([sys.executable, "-m", "ps_train", "run", script.name], cwd=folder, stdout=log,
                                       stderr=subprocess.STDOUT, env=environment, timeout=_DEADLINE_SECS,
                                       preexec_fn=killed_with_parent()).returncode
        except subprocess.TimeoutExpired:
            exit_code = 124
        log.seek(0)
        outcomes = _RESULT.findall(log.read())
    failed = frozenset(test for outcome, test in outcomes if outcome == "FAILED")
    return Result(name, frozenset(test for outcome, test in outcomes if outcome == "OK") - failed, failed, exit_code)


def _table(results: list[Result]) -> str:
    """Returns a line for each package: files, tests that passed, and tests in all."""
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for result in results:
        for package in ("/".join(result.file.split("/")[:2]), "all"):
            for place, number in enumerate((1, len(result.passed), len(result.passed) + len(result.failed))):
                counts[package][place] += number
    return "\n".join(["| package | files | tests passed | of |", "|---|---|---|---|", *(
        f"| {package} | {files} | {passed} | {tests} |" for package, (files, passed, tests) in sorted(
            counts.items(), key=lambda item: (item[0] == "all", item[0])))])


if __name__ == "__main__":
    sys.exit(main())
