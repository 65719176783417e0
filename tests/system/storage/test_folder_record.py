"""The record of a train_dir: another network or other data there is refused, anything else goes on."""

from __future__ import annotations

import json
import logging
import shutil

import pytest

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import Dataset, Model
from ps_train.storage import folder_record
from tests import clusters
from tests.errors import raises
from tests.processes import REPO, TaskCluster

MODEL = Model("models.cnn", clusters.linear_model, {"dropout": 0.2, "filters": 16})
DATASET = Dataset("data.mine", lambda mode, params, shard: None, lambda params: None, {"size": 9, "filters": 16})


def record(model=MODEL, dataset=DATASET, **params):
    """Returns the record of a training with these parameters, and the defaults of the others."""
    shared = {"hidden_units": 100, "learning_rate": 0.1, "seed": 3}
    return folder_record.make_record(model, {**shared, **model.default_params, **params}, dataset,
                                  {**shared, **dataset.default_params, **params})


def test_flags_that_a_user_may_change_are_not_in_it():
    """The learning rate and the seed; the parameters of the plug-ins and the hidden units are in it."""
    assert record() == record(learning_rate=0.5, seed=4)
    assert record() == {"model": "models.cnn", "model_params": {"dropout": 0.2, "filters": 16, "hidden_units": 100},
                        "dataset": "data.mine", "dataset_params": {"filters": 16, "size": 9}}


_REMOVE = "remove {folder}/training.json"


@pytest.mark.parametrize(("changes", "differing", "advice"), [
    ({"hidden_units": 50}, "--hidden_units is 50, but 100 in the folder", _REMOVE),
    # Listed once, though both plug-ins have it.
    ({"filters": 4}, "filters in --params is 4, but 16 in the folder", "--accept_params=filters"),
    ({"dropout": 0.5, "size": 8}, "dropout in --params is 0.5, but 0.2 in the folder; "
                                  "size in --params is 8, but 9 in the folder", "--accept_params=dropout,size"),
    ({"model": Model("other", clusters.linear_model, {"dropout": 0.5})},
     "--model is other, but models.cnn in the folder", _REMOVE),
    ({"dataset": Dataset("data.digits", DATASET.input_fn, DATASET.prepare, {})},
     "--dataset is data.digits, but data.mine in the folder", _REMOVE),
])
def test_differences_are_listed_with_what_to_do(tmp_path, changes, differing, advice):
    """One line; the parameters of another plug-in are not compared, as they have another meaning."""
    folder_record.write_record(str(tmp_path), record())
    with raises("other_training_in_folder", kind=ConfigError) as caught:
        folder_record.check_record(str(tmp_path), record(**changes))
    assert all(value in str(caught.value) for value in (str(tmp_path), f": {differing};")) and "\n" not in str(
        caught.value)
    assert str(caught.value).endswith(advice.format(folder=tmp_path))


def test_an_accepted_parameter_may_differ(tmp_path):
    """The others may not."""
    folder_record.write_record(str(tmp_path), record())
    folder_record.check_record(str(tmp_path), record(dropout=0.5, size=8), ["dropout", "size"])
    with raises("other_training_in_folder") as caught:
        folder_record.check_record(str(tmp_path), record(dropout=0.5, size=8), ["dropout"])
    assert "size in --params" in str(caught.value) and "dropout" not in str(caught.value)


def test_the_location_of_the_data_is_recorded_and_not_compared(tmp_path, monkeypatch):
    """As an absolute path, since evaluations may run elsewhere; with the parameters that name files."""
    monkeypatch.chdir(tmp_path)
    dataset = Dataset("data.mine", DATASET.input_fn, DATASET.prepare, {"size": 9, "train_files": "a*"})
    records = [folder_record.make_input_record(dataset, {"data_dir": folder, "seed": None, "on_bad_record": "skip",
                                                       "size": 9, "train_files": "b*"})
             for folder in ("here", "gs://there/data")]
    assert records == [{"input": {"data_dir": folder, "on_bad_record": "skip", "train_files": "b*"}}
                     for folder in (str(tmp_path / "here"), "gs://there/data")]
    folder_record.write_record(str(tmp_path), {**record(), **records[0]})
    folder_record.check_record(str(tmp_path), {**record(), **records[1]})


def test_the_same_training_fits(tmp_path):
    """Also a number that is none; a plug-in that has got another parameter since; a folder without a record."""
    folder_record.check_record(str(tmp_path), record())
    folder_record.write_record(str(tmp_path), record(dropout=float("nan")))
    more = Model(MODEL.name, MODEL.model_fn, {**MODEL.default_params, "new": 1})
    folder_record.check_record(str(tmp_path), record(more, dropout=float("nan")))
    assert [path.name for path in tmp_path.iterdir()] == [folder_record.RECORD_NAME]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"model": "models.cnn"}'])
def test_a_damaged_record_is_replaced(tmp_path, damaged):
    """No training is refused because of it."""
    (tmp_path / folder_record.RECORD_NAME).write_text(damaged)
    folder_record.check_record(str(tmp_path), record())
    folder_record.write_record(str(tmp_path), record())
    assert json.loads((tmp_path / folder_record.RECORD_NAME).read_text()) == record()


def test_a_record_that_cannot_be_written_is_a_warning(tmp_path, monkeypatch, caplog):
    """Training goes on, and nothing is left behind."""
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)

    def replace(old, new):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_record.os, "replace", replace)
    folder_record.write_record(str(tmp_path), record())
    assert "training.json: No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_another_dataset_in_the_default_folder_is_refused(start_process, tmp_path):
    """As `python -m ps_train` is typed, without --train_dir: exit code 2 before a socket opens; launch says it, too."""
    for name in ("mine.py", "other.py"):
        shutil.copy(REPO / "tests/plugins/tiny.py", tmp_path / name)
    flags = ["--model=mine", "--batch_size=16", "--train_steps=40"]
    where = {"cwd": tmp_path, "env": {"TMPDIR": str(tmp_path)}}
    cluster = TaskCluster(1, 1)
    cluster.start(start_process, [*flags, "--dataset=mine"], **where)
    assert set(start_process.wait().values()) == {0}
    folder = tmp_path / "ps_train/mine"
    for name, words in (("other", cluster.flags("worker", 0)), ("launch", ["launch", f"--train_dir={folder}"])):
        start_process.start(name, [*words, *flags, "--dataset=other"], **where)
        assert start_process.exit_code(name) == 2  # before the next one: it holds the folder while it compares
        line = start_process.log(name).splitlines()[-1]
        assert line.endswith("[other_training_in_folder]") and str(folder) in line and "--dataset is other" in line
        assert "serves at" not in start_process.log(name)
        assert "Starting" not in start_process.log(name)
    (folder / folder_record.RECORD_NAME).unlink()
    cluster.start(start_process, [*flags, "--dataset=other"], **where)
    assert {start_process.exit_code(f"{job}-{index}") for job, index in cluster.tasks()} == {0}
    assert json.loads((folder / folder_record.RECORD_NAME).read_text())["dataset"] == "other"
