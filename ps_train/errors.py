"""The errors of ps_train, each with the exit code of the process that it ends.

    PsTrainError
      ConfigError         2   bad configuration; raised before any socket opens
      UserCodeError       1   the user's code or data is at fault
        DataError         1     a data file is missing, damaged or of another kind
          MissingDataError  1   a data file is missing and cannot be fetched
        CheckpointError   1     a checkpoint does not fit the model, or cannot be read
        MissingNameError  1     TF1 code uses a name that TensorFlow no longer has; an AttributeError too
        MissingModuleError  1   the same in an import statement; an ImportError too
      SaveError           1   the last checkpoint cannot be written
      ClusterLostError  138   a task or the network is unreachable; the same command may be run again
        BlackboardError   138     a ps does not answer
        ChiefFailedError  138     the chief's code failed
        FolderLostError   138     another training has taken over the train_dir
      LaunchError         -   that of the task that failed, or of the signal
      StoppedError      143   the process was asked to stop

Each error has a code, a name in snake_case that does not change when the wording does: `PsTrainError("port_busy",
"...")`. It stands in brackets behind the printed line. docs/errors.md lists all codes with their messages.

The exit codes fit Kubeflow's restart policy `ExitCode`: 1 to 127 are permanent, 128 to 255 retryable
(https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/tensorflow/).
"""

from __future__ import annotations

from collections.abc import Sequence


class Problem(str):
    """One line of an error, with the code of its kind."""

    code: str

    def __new__(cls, code: str, text: str) -> Problem:
        """Takes the code and the line."""
        problem = super().__new__(cls, text)
        problem.code = code
        return problem

    def __reduce__(self) -> tuple:  # pickle would call `__new__` with the line only
        return Problem, (self.code, str(self))


class PsTrainError(Exception):
    """An error that a user can act on. Its message, a line for each problem, is shown without a traceback.

    Attributes:
      exit_code: of the process that it ends.
      problems: one, or all that were found together.
    """

    exit_code = 1
    # AutoGraph, which converts functions of a model, lets the error pass; otherwise it would raise a StagingError.
    ag_pass_through = True

    def __init__(self, code: str = "", message: str | None = None) -> None:
        """Takes the code, "" for an error of another process that has one in its message, and the message.

        A plug-in may give the message only, or nothing.
        """
        if message is None:
            code, message = "unnamed", code
        super().__init__(message)
        self.problems: tuple[Problem, ...] = (Problem(code, message),)

    @property
    def code(self) -> str:
        """The code of the first problem."""
        return self.problems[0].code

    def lines(self) -> list[str]:
        """Returns the lines of the message as they are printed; the first line of each problem ends with its code."""
        lines = []
        for problem in self.problems:
            if not problem:  # all is logged already
                continue
            first, *more = problem.splitlines()
            is_named = problem.code not in ("", "unnamed")
            lines += [f"{first} [{problem.code}]" if is_named else first, *more]
        return lines


class ConfigError(PsTrainError):
    """The configuration is wrong; the message has the value, the allowed ones, and the next step."""

    exit_code = 2


def refuse(problems: Sequence[Problem]) -> None:
    """Raises one ConfigError with all the problems, if there are any."""
    if problems:
        error = ConfigError("", "\n".join(problems))
        error.problems = tuple(problems)
        raise error


class UserCodeError(PsTrainError):
    """A model or dataset plug-in broke its contract while it ran."""

    exit_code = 1


class DataError(UserCodeError):
    """A data file is missing, damaged or of the wrong kind; the message names the file."""


class MissingDataError(DataError):
    """A data file is missing and cannot be fetched; the message says why, and where else to get the data."""

    def __init__(self, code: str, fault: str, advice: str) -> None:
        """Takes both parts of the message; `ps_train launch`, which may follow the advice, shows only the fault."""
        super().__init__(code, f"{fault}: {advice}")
        self.fault = fault


class CheckpointError(UserCodeError):
    """A checkpoint does not fit the model, or cannot be read; the message lists what differs or is damaged."""


class MissingNameError(UserCodeError, AttributeError):
    """TF1 code uses a name that TensorFlow has removed; the message has the name, the line, and a replacement."""


class MissingModuleError(UserCodeError, ModuleNotFoundError):
    """TF1 code imports a module that TensorFlow has removed; the message is that of a MissingNameError."""


class SaveError(PsTrainError):
    """The last checkpoint cannot be written; the message has the reason, and the newest checkpoint that can be read."""

    exit_code = 1


class ClusterLostError(PsTrainError):
    """A task did not answer within its time-out; the message has its name and address."""

    exit_code = 138


class StoppedError(PsTrainError):
    """A signal has stopped the process, which has saved before."""

    exit_code = 143


class StopRequestedError(StoppedError):
    """`ps_train stop` has stopped all tasks, so this one must not be restarted."""


class BlackboardError(ClusterLostError):
    """A ps does not answer, or has not created its blackboard yet."""


class ChiefFailedError(ClusterLostError):
    """The chief's code failed, which ends the training of all tasks."""

    def __init__(self) -> None:
        """Takes nothing: it always says the same."""
        super().__init__("chief_failed", "the chief gave up training: see its log for the fault")


class LaunchError(PsTrainError):
    """A task failed, or the launcher was asked to stop; has the exit code of the cause.

    Attributes:
      cause: the error of the task at fault, with its traceback, which the launcher has shown; None for a signal.
    """

    def __init__(self, code: str, message: str, exit_code: int, cause: PsTrainError | None = None) -> None:
        """Takes the message, "" if all is logged already, the launcher's exit code, and the cause."""
        super().__init__(code, message)
        self.exit_code, self.cause = exit_code, cause


class TrainingEndedError(PsTrainError):
    """The training in question has ended; has the exit code with which it did."""

    def __init__(self, code: str, message: str, exit_code: int) -> None:
        """Takes the message and the exit code."""
        super().__init__(code, message)
        self.exit_code = exit_code


class FolderLostError(ClusterLostError):
    """Another training took the folder while this process was suspended; it may not save there any longer."""
