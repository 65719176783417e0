"""Which training a verb is about, and its answers in JSON."""

from __future__ import annotations

import json
import math

import pytest

from ps_train.parts.control.verb import StatusConfig
from ps_train.storage import run_record
from ps_train.verbs.verb import json_answer, name_train_dir


@pytest.mark.parametrize(("words", "expected"), [
    (["run", "--json"], ["--train_dir=run", "--json"]),
    (["--json", "run"], ["--train_dir=run", "--json"]),
    (["--timeout_secs", "5", "--watch", "run"], ["--train_dir=run", "--timeout_secs", "5", "--watch"]),
    (["run", "again"], ["--train_dir=run", "again"]),
    (["--train_dir=x"], ["--train_dir=x"]),
    (["--train_dir", "x"], ["--train_dir", "x"]),
    (["-ps_hosts=a:1"], ["-ps_hosts=a:1"]),
    (["--saved_model=m"], ["--saved_model=m"]),
    (["--json"], ["--train_dir=NEWEST", "--json"]),
    ([], ["--train_dir=NEWEST"]),
])
def test_the_folder_of_a_verb(words, expected, tmp_path, monkeypatch, capsys):
    """A word, a flag, or the newest run, which is printed on stderr, separate from an answer in JSON."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run_record.write_launch(str(tmp_path), ["launch"])
    expected = [word.replace("NEWEST", str(tmp_path)) for word in expected]
    assert name_train_dir(words, StatusConfig) == expected
    out, err = capsys.readouterr()
    is_newest = str(tmp_path) in "".join(expected)
    assert out == "" and (f"--train_dir={tmp_path}" in err) is is_newest


def test_without_a_run_no_folder_is_added(tmp_path, monkeypatch):
    """The verb then says that it is missing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert name_train_dir(["--json"], StatusConfig) == ["--json"]


def test_json_has_neither_nan_nor_infinity():
    """Wherever they are in the answer: jq and the parsers of other languages refuse the whole line."""
    answer = {"loss": math.nan, "rows": [{"norm": math.inf, "values": [-math.inf, 0.5]}], "name": "NaN"}
    assert json.loads(json_answer(answer), parse_constant=pytest.fail) == {
        "loss": "nan", "rows": [{"norm": "inf", "values": ["-inf", 0.5]}], "name": "NaN"}
