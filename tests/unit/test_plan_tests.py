"""The plan of `./run_tests.sh`: which test files run, and which of them share a process."""

from __future__ import annotations

import json
import re

import pytest

from scripts import plan_tests


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A function that writes the record of a whole run of this source, with what is given in place of its digests."""
    path = tmp_path / "record.json"
    monkeypatch.setattr(plan_tests, "RECORD", path)
    passed = plan_tests.digests()
    return lambda **others: path.write_text(json.dumps({"passed": {**passed, **others}, "files": {}}))


def files_of(*args, **options):
    """Returns the files of a plan."""
    return [name for group in plan_tests.plan(*args, **options) for name in group]


def test_a_unit_that_is_as_the_last_whole_run_found_it_is_left_out(record):
    """A part that has changed is tested, and so are the quick tests of the spine in any case."""
    record(**{"parts/ssh": "another"})
    files = files_of(["tests/unit"], is_whole=False)
    of_parts = {name.split("/")[3] for name in files if name.count("/") > 3 and "/parts/" in name}
    assert of_parts == {"ssh"} and "tests/unit/test_errors.py" in files


def test_a_spine_that_has_not_changed_has_few_tests_with_processes(record):
    """With a change, or another TensorFlow, it has all."""
    record()
    folders = ["tests/unit", "tests/cluster", "tests/system"]
    some = files_of(folders, is_whole=False)
    assert "tests/system/recovery/test_worker.py" in some and "tests/system/test_run_local.py" in some
    assert not [name for name in some if name.startswith("tests/cluster") or name == "tests/system/recovery/test_ps.py"]
    record(spine="another")
    assert {"tests/cluster/graph/test_transfer.py", "tests/system/recovery/test_ps.py"} <= set(
        files_of(folders, is_whole=False))


def test_the_spine_has_not_passed_with_another_tensorflow(record, monkeypatch):
    """Nor with another Python or NumPy; the digests of the units are of their files alone."""
    record()
    assert plan_tests.changed_units() == set()
    monkeypatch.setattr(plan_tests, "tensorflow_version", lambda: "2.0.0")
    assert plan_tests.changed_units() == {"spine"}


def test_what_always_runs_is_there():
    """A test that has moved would be left out unseen."""
    assert all((plan_tests.REPO / place).exists() for place in (*plan_tests._ALWAYS, *plan_tests._OF_UNITS))


def test_a_changed_unit_runs_what_checks_the_files_of_all_units(record):
    """Such as the flags in the documents; without a change they are left out with the spine."""
    record(docs="another")
    checks = {"tests/system/test_docs.py", "tests/cluster/test_tensorflow_names.py"}
    assert checks <= set(files_of(["tests/cluster", "tests/system"], is_whole=False))
    record()
    assert not checks & set(files_of(["tests/cluster", "tests/system"], is_whole=False))


def test_ci_leaves_out_of_a_copy_each_part_that_has_changed(record, capsys, monkeypatch):
    """It asks for their names; with a changed document, or an unchanged part, it has nothing to do."""
    record(docs="another", **{"parts/ssh": "another", "parts/tmux": "another"})
    monkeypatch.setattr("sys.argv", ["plan_tests", "--changed_parts"])
    assert plan_tests.main() == 0
    assert capsys.readouterr().out == "ssh tmux\n"


def test_a_whole_run_leaves_out_nothing(record):
    """Nor does a run without a record."""
    expected = sorted(path.relative_to(plan_tests.REPO).as_posix()
                      for path in (plan_tests.REPO / "tests/unit").rglob("test_*.py"))
    assert sorted(files_of(["tests/unit"], is_whole=False)) == expected
    record()
    assert sorted(files_of(["tests/unit"], is_whole=True)) == expected
    assert sorted(files_of(["tests/unit"], is_whole=False)) != expected


def test_a_part_has_the_files_of_those_that_it_imports():
    """So a change to tables runs the tests of inference."""
    sources = plan_tests.units()["parts/inference"].sources
    assert {"ps_train/parts/inference", "ps_train/parts/tables"} <= set(sources)


def test_each_page_whose_commands_are_run_is_watched():
    """By the unit of the test that runs them."""
    text = (plan_tests.REPO / "tests/system/test_how_to.py").read_text(encoding="utf-8")
    assert set(re.findall(r'block\("(docs/.*?)"', text)) == set(plan_tests.units()["docs/how_to"].sources)


def test_a_group_keeps_both_limits():
    """A file beyond one of them is alone."""
    files = {"long": (100, 0), "a": (40, 0), "b": (30, 0), "c": (20, 1000), "d": (1, 1000), "heavy": (1, 5000)}
    groups = plan_tests.groups(list(files), files)
    assert groups[0] == ["long"] and ["heavy"] in groups and ["a", "c"] in groups
    for group in groups:
        secs, mbytes = (sum(files[name][number] for name in group) for number in range(2))
        assert len(group) == 1 or (secs <= 60 and mbytes <= 1700)
