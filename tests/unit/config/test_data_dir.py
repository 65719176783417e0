"""A --data_dir that does not exist, in every verb that reads data."""

from __future__ import annotations

import pytest

from ps_train.config import task
from ps_train.config.folders import check_data_dir
from ps_train.runtime import installed
from ps_train.verbs import table
from tests.errors import raises

_HOSTS = ("--ps_hosts=localhost:1", "--worker_hosts=localhost:2", "--job_name=worker")


@pytest.fixture(autouse=True)
def no_tensorflow(monkeypatch):
    """Fails where a verb imports TensorFlow before it looks."""
    def fail(**_):
        raise AssertionError("TensorFlow is imported first")

    monkeypatch.setattr(installed, "import_tensorflow", fail)
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.mark.parametrize("argv", [
    ["launch"], ["train", *_HOSTS], ["train", *_HOSTS, "--download_only"], ["evaluate", "--train_dir=run"],
    ["predict", "--train_dir=run", "--output=x.csv"], ["plan"], ["keras", "--strategy=default"],
    ["launch", "keras", "--strategy=default"],
], ids=" ".join)
def test_a_data_dir_that_does_not_exist_is_one_line(argv, tmp_path, monkeypatch):
    """It was created, empty or with a download, and a mistyped folder was not noticed."""
    monkeypatch.chdir(tmp_path)
    name, arguments = table.split_argv([*argv, "--data_dir=typo"])
    with raises("data_dir_missing") as caught:
        table.find_verb(name).run(arguments)
    assert "'typo'" in str(caught.value) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [
    [],  # the default folder is made for a download
    ["--download_only", "--data_dir=new"],  # so is one that the user asks for
    ["--data_dir=s3://bucket/clicks"],  # TensorFlow looks there
    ["--data_dir=~"], ["--data_dir=."],
], ids=" ".join)
def test_a_folder_that_exists_or_may_be_created_is_accepted(argv):
    """And a data_dir of another kind is left to the dataset."""
    check_data_dir(task.parse_task([*argv, "--job_name=worker"] if "--download_only" not in argv else argv))


@pytest.mark.parametrize("argv", [[*_HOSTS], ["--download_only"]], ids=["train", "download"])
def test_an_empty_data_dir_is_not_the_current_folder(argv):
    """As where a variable of a script has no value: TensorFlow would look where the task was started."""
    with raises("data_dir_missing") as caught:
        check_data_dir(task.parse_task([*argv, "--data_dir="]))
    assert "got ''" in str(caught.value)


def test_the_preparation_of_a_launch_makes_no_folder():
    """It has --download_only, too, but the user did not ask for a download into that folder."""
    with raises("data_dir_missing"):
        check_data_dir(task.parse_task([*_HOSTS, "--download_only", "--data_dir=new"]))
