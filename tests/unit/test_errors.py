"""The exceptions: the exit code of each, and the code of each problem."""

from __future__ import annotations

import pickle

import pytest

from ps_train import errors
from tests.errors import raises


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (errors.PsTrainError, 1),
        (errors.UserCodeError, 1),
        (errors.DataError, 1),
        (errors.CheckpointError, 1),
        (errors.SaveError, 1),
        (errors.ConfigError, 2),
        (errors.ClusterLostError, 138),
        (errors.StoppedError, 143),
    ],
)
def test_each_error_has_its_exit_code(error, exit_code):
    """The exit codes are those of the design, which Kubeflow's restart policy reads."""
    assert issubclass(error, errors.PsTrainError)
    assert error.exit_code == exit_code


@pytest.mark.parametrize("error", [errors.DataError, errors.CheckpointError])
def test_data_and_checkpoint_errors_are_the_users(error):
    """A handler for faults of the user gets those of data and checkpoints, too."""
    assert issubclass(error, errors.UserCodeError)


def test_refuse_reports_all_problems_together():
    """Several problems become one ConfigError, a line with its code for each; without problems nothing is raised."""
    errors.refuse([])
    with raises("flag_unknown", "port_busy", kind=errors.ConfigError) as caught:
        errors.refuse([errors.Problem("flag_unknown", "--x"), errors.Problem("port_busy", "port 1")])
    assert str(caught.value) == "--x\nport 1"
    assert caught.value.lines() == ["--x [flag_unknown]", "port 1 [port_busy]"]


@pytest.mark.parametrize(("code", "line"), [("data_missing", "no file [data_missing]"), ("", "no file")])
def test_a_printed_line_ends_with_the_code(code, line):
    """The first of a message; an error of another process has its code in the text."""
    error = errors.DataError(code, "no file\nsecond line")
    assert error.lines() == [line, "second line"] and error.code == code


def test_the_codes_survive_another_process():
    """An error that is pickled, as by multiprocessing, has its problems afterwards."""
    error = errors.ConfigError("port_busy", "port 80 is in use")
    assert [problem.code for problem in pickle.loads(pickle.dumps(error)).problems] == ["port_busy"]
