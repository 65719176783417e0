"""The examples: the commands of each README are run in a copy of its folder, and what they leave is right."""

from __future__ import annotations

import csv
import re
import shutil

import numpy as np
import pytest

from tests import pages
from tests.processes import REPO

EXAMPLES = REPO / "examples"


@pytest.fixture
def carry_out(start_process, tmp_path):
    """Carries out the README of an example; returns the folder and the output of all commands."""
    def follow(name):
        folder = tmp_path / name
        shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        reader = pages.Reader(folder, start_process)
        reader.follow((folder / "README.md").read_text(encoding="utf-8"))
        return folder, "".join(start_process.log(f"command-{number}") for number in reader.ps_train_commands)
    return follow


def test_churn_predicts_who_leaves(carry_out):
    """One probability for each row, better than chance, and a SavedModel."""
    folder, output = carry_out("churn")
    assert float(re.search(r"AUC = (\S+)", output)[1]) > 0.8
    with open(folder / "leaving.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and all(0 < float(row["probability"]) < 1 for row in rows)
    assert list(folder.glob("exported/*/saved_model.pb"))


def test_movies_recommends_what_the_user_likes(carry_out, monkeypatch):
    """The error is far below the spread of the ratings, and most movies are of the genres that the user likes."""
    folder, output = carry_out("movies")
    assert float(re.search(r"RMSE = (\S+)", output)[1]) < 0.7
    monkeypatch.syspath_prepend(str(folder))
    import ratings  # noqa: PLC0415 it is in the folder

    liked = set(np.argsort(-ratings.tastes()[0][7])[:2])
    genres = [int(genre) for genre in re.findall(r"genre (\d)", (folder / "recommended.txt").read_text())]
    assert len(genres) == 10 and sum(genre in liked for genre in genres) >= 7


def test_word2vec_runs_unchanged(carry_out):
    """The nearest words are of the same subject."""
    _, output = carry_out("word2vec")
    found = re.findall(r"\| (\w+)-0: (.*)", output)
    assert len(found) == 6
    near = [word.split("-")[0] == subject for subject, words in found for word in words.split(", ")]
    assert np.mean(near) > 0.8


def test_the_list_has_each_example():
    """Each folder with a README is in examples/README.md."""
    listed = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
