"""TensorFlow 1.15's own tests: which files are run, and how their logs are counted."""

from __future__ import annotations

import pytest

from benchmarks import tests_of_1_15
from benchmarks.tests_of_1_15 import Result


def test_folders_stand_for_the_test_files_in_them(tmp_path):
    """A file may be named without its ending."""
    for name in (
            "contrib/crf/crf_test.py", "contrib/crf/deep/ops_test.py", "contrib/crf/crf.py", "python/adam_test.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = tests_of_1_15._files(tmp_path, ["contrib/crf", "python/adam_test"])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in found) == [
        "contrib/crf/crf_test.py", "contrib/crf/deep/ops_test.py", "python/adam_test.py"]


@pytest.mark.parametrize(("line", "outcomes"), [
    ("[       OK ] CrfTest.testDecode", [("OK", "CrfTest.testDecode")]),
    ("[  FAILED  ] CrfTest.testDecode", [("FAILED", "CrfTest.testDecode")]),
    ("[ RUN      ] CrfTest.testDecode", []), ("[  FAILED  ] 2 tests, listed below:", [])])
def test_the_log_of_a_file_says_what_passed(line, outcomes):
    """By the lines that absl prints."""
    assert tests_of_1_15._RESULT.findall(f"before\n{line}\nbehind") == outcomes


def test_packages_are_summed():
    """With a line for all."""
    results = [Result("contrib/crf/a_test", frozenset("ab"), frozenset("c"), 1),
               Result("contrib/crf/b_test", frozenset("d"), frozenset(), 0),
               Result("python/training/c_test", frozenset(), frozenset(), 1)]
    assert tests_of_1_15._table(results).splitlines()[2:] == [
        "| contrib/crf | 2 | 3 | 4 |", "| python/training | 1 | 0 | 0 |", "| all | 3 | 3 | 4 |"]
