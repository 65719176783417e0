"""The examples: the commands of each README are run in a copy of its folder, and what they leave is right."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil

import numpy as np
import pytest

import ps_train
from tests import pages
from tests.processes import DEADLINE_SECS, REPO

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


def test_live_serves_what_was_learned(carry_out, monkeypatch):
    """The probabilities that a server returns are near the chances of the articles."""
    folder, _ = carry_out("live")
    monkeypatch.syspath_prepend(str(folder))
    import ask  # noqa: PLC0415 it is in the folder
    import news  # noqa: PLC0415 it is in the folder

    with ps_train.LiveModel(str(folder / "served")) as model, ps_train.predict_server(model, 0) as port:
        found = ask.ask(port, range(100))
    assert np.abs(found - news.chances(100)).mean() < 0.1


def test_word2vec_runs_unchanged(carry_out):
    """The nearest words are of the same subject."""
    _, output = carry_out("word2vec")
    found = re.findall(r"\| (\w+)-0: (.*)", output)
    assert len(found) == 6
    near = [word.split("-")[0] == subject for subject, words in found for word in words.split(", ")]
    assert np.mean(near) > 0.8


def test_the_notebook_trains_and_draws(tmp_path, monkeypatch):
    """In a kernel of its own: its cells end without an error, and the last one has a plot of both workers."""
    nbformat = pytest.importorskip("nbformat", reason="needs nbclient and ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
    pytest.importorskip("ipykernel", reason="needs nbclient and ipykernel")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(EXAMPLES / "notebook/training.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=2 * DEADLINE_SECS, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert re.search(r"step 40[01]: the global step reached train_steps; accuracy 0\.[89]", text), text
    assert any("image/png" in output.get("data", {}) for output in outputs)
    events = [json.loads(line) for line in (tmp_path / "runs/notebook/events.jsonl").read_text().splitlines()]
    assert {*[event for event in events if event["kind"] == "workers"][-1]["values"]} == {"worker:0", "worker:1"}


FEATURES = {  # script -> what its last line says; GOOD is an accuracy
    "base": r"step 10[01], accuracy GOOD: the global step reached train_steps",
    "sync": r"step 100, accuracy GOOD: the global step reached train_steps",
    "local_steps": r"step 2\d\d, accuracy GOOD: the global step reached train_steps",
    "tables": r"step 100, accuracy GOOD: the global step reached train_steps",
    "dynamic_sharding": r"step 2\d\d, accuracy GOOD: the data .*",
    "best_and_early_stop": r"step \d+, accuracy GOOD: early stopping: accuracy was best with .*",
    "export": r"step 100, probabilities of eight points: \[(0\.\d+,? ?){8}\]",
    "warm_start": r"step 1, accuracy GOOD: the global step reached train_steps",
    "callbacks": r"step \d+, accuracy GOOD: the loss was 0\.(4\d|50) at step \d+",
    "restart": r"step 100, accuracy GOOD: the global step reached train_steps",
}


@pytest.mark.parametrize("name", FEATURES)
def test_each_feature_runs_and_says_what_it_did(name, tmp_path):
    """The script trains, in a copy of the folder, and its last line has the figures."""
    folder = tmp_path / "by_feature"
    shutil.copytree(EXAMPLES / "by_feature", folder, ignore=shutil.ignore_patterns("__pycache__"))
    output = pages.run_script(f"{name}.py", folder)
    assert re.fullmatch(FEATURES[name].replace("GOOD", r"(0\.9\d|1\.00)"), output.splitlines()[-1]), output
    if name == "restart":
        assert (folder / "runs/restart-was-killed").exists()


def test_the_features_are_small_and_listed():
    """Each script is in the README, and but for the base and those with their own data, is no longer than 25 lines."""
    readme = (EXAMPLES / "by_feature/README.md").read_text(encoding="utf-8")
    lengths = {path.stem: len(path.read_text().splitlines()) for path in (EXAMPLES / "by_feature").glob("*.py")}
    assert {*lengths} == {*FEATURES} == {*re.findall(r"^\| \[(\w+)\]", readme, re.MULTILINE)}
    assert {name for name, length in lengths.items() if length > 25} == {"base", "tables", "dynamic_sharding"}


def test_the_list_has_each_example():
    """Each folder with a README is in examples/README.md."""
    listed = re.findall(r"\]\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
