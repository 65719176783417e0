"""The words of `ps_train rows TABLE ID... [DIR]`."""

from __future__ import annotations

import pytest

from ps_train.parts.rows import verb
from tests.errors import raises


@pytest.mark.parametrize(("argv", "table", "ids", "flags"), [
    ("items 17 42 --train_dir=/jobs/7", "items", ("17", "42"), ("--train_dir=/jobs/7",)),
    ("items 17 /jobs/7 --json", "items", ("17",), ("--train_dir=/jobs/7", "--json")),
    ("items a/b --train_dir /jobs/7", "items", ("a/b",), ("--train_dir", "/jobs/7")),
    ("--json items -5 7", "items", ("-5", "7"), ("--json",)),
    ("items -5 run", "items", ("-5",), ("--train_dir=run",)),
    ("items --since=100 --top=3 run", "items", (), ("--train_dir=run", "--since=100", "--top=3")),
    ("a/b s3://jobs/7 --since=100", "a/b", (), ("--train_dir=s3://jobs/7", "--since=100")),
    ("items --top 3 17", "items", ("17",), ("--top", "3")),
])
def test_the_last_word_is_the_folder_if_it_is_one(tmp_path, monkeypatch, argv, table, ids, flags):
    """Or has a slash, and no flag names the folder; the first is the table, which may have a slash, too."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    assert verb.split_words(argv.split()) == verb.RowsWords(table, ids, flags)


@pytest.mark.parametrize("argv", ["", "--train_dir=/jobs/7", "items", "items --train_dir=/jobs/7", "items /jobs/7"])
def test_a_table_and_an_id_or_since_must_be_given(argv):
    """Else there is nothing to show."""
    with raises("word_missing"):
        verb.split_words(argv.split())


@pytest.mark.parametrize(("flags", "code"), [
    (["--train_dir=x", "--top=0"], "flag_out_of_range"), ([], "flag_missing"),
    (["--train_dir=x", "--batch_size=3"], "flag_unknown"),
])
def test_a_wrong_flag_is_one_line(flags, code):
    """Before TensorFlow is imported."""
    with raises(code):
        verb.parse_rows(flags)
