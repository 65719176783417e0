"""Which training a verb is about."""

from __future__ import annotations

import pytest

from ps_train.parts.control.flags import StatusConfig
from ps_train.storage import run_record
from ps_train.verbs.folders import name_train_dir


@pytest.mark.parametrize(("words", "named"), [
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
def test_a_folder_stands_alone_or_is_given_or_the_newest(words, named, tmp_path, monkeypatch, capsys):
    """The newest run is named on standard error, apart from an answer in JSON."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    run_record.write_launch(str(tmp_path), ["launch"])
    named = [word.replace("NEWEST", str(tmp_path)) for word in named]
    assert name_train_dir(words, StatusConfig) == named
    out, err = capsys.readouterr()
    is_newest = str(tmp_path) in "".join(named)
    assert (out, err) == ("", f"ps_train: --train_dir={tmp_path}, the newest run that was launched here\n" * is_newest)


def test_without_a_run_the_verb_itself_asks_for_the_folder(tmp_path, monkeypatch):
    """Nothing is added."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert name_train_dir(["--json"], StatusConfig) == ["--json"]
