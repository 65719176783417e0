"""The records of a training's tasks and of its launch."""

from __future__ import annotations

import json
import os
import tempfile

import pytest

from ps_train.errors import ConfigError
from ps_train.storage import run_record
from tests.errors import raises


def test_a_launch_comes_back(tmp_path, monkeypatch):
    """With the folder in which it was started."""
    monkeypatch.chdir(tmp_path)
    run_record.write_launch(str(tmp_path), ["launch", "--num_ps=1"])
    assert run_record.read_launch(str(tmp_path)) == {"folder": str(tmp_path), "command": ["launch", "--num_ps=1"]}


@pytest.mark.parametrize("text", ["{", "[]", json.dumps({"ps": {}})], ids=["cut off", "no mapping", "another's"])
def test_a_file_that_ps_train_did_not_write_is_one_line(tmp_path, text):
    """Other programs have a file cluster.json, too."""
    (tmp_path / "cluster.json").write_text(text)
    with raises("run_record_unreadable", kind=ConfigError) as caught:
        run_record.read_run(str(tmp_path))
    assert f"{tmp_path}/cluster.json" in str(caught.value) and "\n" not in str(caught.value)


def test_the_newest_launch_of_a_folder_is_known(tmp_path, monkeypatch):
    """Of this folder, and only while its record confirms it."""
    here, there, run, other = (tmp_path / name for name in ("here", "there", "run", "other"))
    for folder in (here, there, run, other):
        folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(here)
    assert run_record.newest_launch() == ""
    for train_dir in (other, run):
        run_record.write_launch(str(train_dir), ["launch"])
    assert run_record.newest_launch() == str(run)
    monkeypatch.chdir(there)
    assert run_record.newest_launch() == ""
    run_record.write_launch(str(run), ["launch"])  # the same folder for the checkpoints, launched from elsewhere
    monkeypatch.chdir(here)
    assert run_record.newest_launch() == ""


def test_a_launch_continues_if_its_note_cannot_be_written(tmp_path, monkeypatch):
    """Only a verb without --train_dir needs the note."""
    (tmp_path / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run_record.write_launch(str(tmp_path), ["launch"])
    assert run_record.newest_launch() == ""
    assert run_record.read_launch(str(tmp_path))["command"] == ["launch"]


def test_a_launch_is_kept_before_the_chief_makes_its_folder(tmp_path, caplog):
    """With --log_dir elsewhere nobody else has made it."""
    run_record.write_launch(str(tmp_path / "new"), ["launch"])
    assert run_record.read_launch(str(tmp_path / "new"))["command"] == ["launch"] and not caplog.records


def test_a_user_without_a_home_may_launch(tmp_path, monkeypatch):
    """As one who is not in /etc/passwd, under a scheduler that empties the environment."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as Python does then
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    run_record.write_launch(str(tmp_path / "run"), ["launch"])
    assert run_record.newest_launch() == str(tmp_path / "run")
    assert [path.name for path in (tmp_path / "temporary").iterdir()] == [f"ps_train-{os.getuid()}"]


def test_a_folder_whose_name_is_no_text_may_be_launched_in(tmp_path, monkeypatch):
    """Its bytes are not UTF-8: the newest launch is not noted, and that is all."""
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run_record.write_launch(str(tmp_path / "run"), ["launch"])
    assert run_record.newest_launch() == ""
    assert run_record.read_launch(str(tmp_path / "run"))["command"] == ["launch"]
