"""The exception family: what each error makes of the process."""

from __future__ import annotations

import pickle

import pytest

from ps_train import errors


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
    """A handler for the user's own faults gets those of data and checkpoints too."""
    assert issubclass(error, errors.UserCodeError)


def test_refuse_tells_all_problems_at_once():
    """Several problems become one ConfigError, a line for each."""
    with pytest.raises(errors.ConfigError) as caught:
        errors.refuse(["one", "two"])
    assert str(caught.value).splitlines() == ["one", "two"]


def test_refuse_accepts_no_problems():
    """Without problems nothing is raised."""
    errors.refuse([])


def test_the_codes_survive_another_process():
    """An error that is pickled, as by multiprocessing, has its problems afterwards."""
    error = errors.ConfigError("port_busy", "port 80 is in use")
    assert [problem.code for problem in pickle.loads(pickle.dumps(error)).problems] == ["port_busy"]
