"""Reports a fault in the user's code or data by the lines of the user's files.

    Traceback (most recent call last), your own code only:
      File "/home/me/mymodel.py", line 10, in model_fn
        hidden = tf.nn.rellu(features)
    AttributeError: module 'tensorflow._api.v2.compat.v1.nn' has no attribute 'rellu'
    ps_train: mymodel.model_fn failed: correct line 10 of /home/me/mymodel.py, then run the same command again

For an error from TensorFlow, that is the user's line that created the operation, or the Python function that the
dataset called. If no frame is the user's, the report is the whole traceback. TensorFlow is not imported: its errors are
recognised by the names of their types and attributes.
"""

from __future__ import annotations

import linecache
import os
import pathlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ps_train.errors import UserCodeError
from ps_train.runtime.advice import advise, is_python2
from ps_train.runtime.tensorflow_errors import telling_lines

HEADING = "Traceback (most recent call last), your own code only:"
_PACKAGES = (str(pathlib.Path(__file__).parents[1]) + os.sep,)
_STANDARD_LIBRARY = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
_FRAMEWORK = re.compile(r"[/\\](tensorflow|tf_keras|keras|absl|numpy|ps_train)[/\\]")
_FRAME_IN_TEXT = re.compile(r'^\s*File "([^"]+)", line (\d+), in (\S+)', re.MULTILINE)
_PYTHON_IN_TEXT = re.compile(r"^(Traceback \(most recent call last\):|.*in user code:)$", re.MULTILINE)
_FUNCTION_OF_DATASET = re.compile(r"Error in user-defined function passed to (\S+) .*?with iterator: \S+: ")
_CONVERT = "convert it, for example with fissix: pip install fissix, then python -m fissix -w FILE"
_NO_FAULT = re.compile(r"^raise\b|\boriginal\b")  # a wrapper calls the function of a library `original`
_MAX_LINE = 300  # an error may list all labels of a mini-batch


class Frame(NamedTuple):
    """A line of code that was running, or that created an operation."""

    path: str
    line: int
    function: str


def report(error: BaseException, python2_advice: str = _CONVERT) -> tuple[list[str], UserCodeError | None]:
    """Returns the lines of the traceback in the user's code, and an error that says what to do about it.

    For an error without a frame of the user it returns the whole traceback and None. If one line says it all, as for a
    package that is not installed, it returns no traceback.

    Args:
      python2_advice: what to do about code of Python 2; "" if it was converted already.
    """
    frames = _frames(error)
    if fault := _fault_in_a_line(error, frames, python2_advice):
        return [], fault
    if frames and (fault := _fault_in_ps_train(error, frames[-1])):
        return whole(error), fault
    dataset_function = _FUNCTION_OF_DATASET.search(str(error))
    if not frames and not dataset_function:
        return whole(error), None
    if frames and python2_advice and is_python2(error):
        fault = UserCodeError("python2_code",
                              f"line {frames[-1].line} of {frames[-1].path} is Python 2: {python2_advice}")
    else:
        fault = _fault(error, frames)
    return [HEADING, *_shown(frames), *_causes(error), _headline(error)], fault


def is_local(path: str) -> bool:
    """Returns whether a file is the user's, not one of Python, of ps_train or of an installed package."""
    return _may_be_own(path) and not _is_installed(path)


def _fault_in_a_line(
    error: BaseException, frames: Sequence[Frame], python2_advice: str
) -> UserCodeError | None:
    """Returns the error about a module that is missing or code of Python 2, None if the traceback says more."""
    if not frames or not isinstance(error, (SyntaxError, ModuleNotFoundError)):
        return None
    path, line, _ = frames[-1]
    if python2_advice and is_python2(error):
        where = f"{path}, line {line}" if isinstance(error, SyntaxError) else f"{path}, line {line}: {error.msg}; it"
        return UserCodeError("python2_code", f"{where} is Python 2: {python2_advice}")
    if advice := advise(error, path):
        return UserCodeError("module_missing", f"{path}, line {line}: {error.msg}: {advice}")
    return None


def _fault_in_ps_train(error: BaseException, caller: Frame) -> UserCodeError | None:
    """Returns the error about a line of ps_train that failed, None if the line refuses or passes on the user's call."""
    raised = traceback.extract_tb(error.__traceback__)
    if not raised or not raised[-1].filename.startswith(_PACKAGES) or _NO_FAULT.search(raised[-1].line or ""):
        return None
    return UserCodeError("ps_train_failed", f"line {raised[-1].lineno} of {raised[-1].filename}, which is ps_train's, "
                         f"failed, called from line {caller.line} of {caller.path}: if that call is right, please "
                         "report this traceback")


def whole(error: BaseException) -> list[str]:
    """Returns the lines of Python's own traceback."""
    return "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip("\n").split("\n")


def _frames(error: BaseException) -> list[Frame]:
    """Returns the user's frames, the outermost first."""
    raised = _raised(error)
    in_text = _own(_frames_in(str(error)))
    if _is_of_tensorflow(error):
        return in_text or _own(_frames_of_operation(error)) or raised
    if isinstance(error, SyntaxError) and error.filename:
        return [*raised, Frame(error.filename, error.lineno or 0, "<module>")]
    return [*raised, *in_text]


def _raised(error: BaseException) -> list[Frame]:
    return _own(Frame(code.filename, code.lineno or 0, code.name) for code in traceback.extract_tb(error.__traceback__))


def _is_of_tensorflow(error: BaseException) -> bool:
    return any(kind.__name__ == "OpError" for kind in type(error).__mro__)


def _frames_in(message: str) -> list[Frame]:
    """Returns the frames of a Python traceback in an error's message, that of a function which TensorFlow called."""
    begin = _PYTHON_IN_TEXT.search(message)
    matches = _FRAME_IN_TEXT.findall(message[begin.end():]) if begin else []
    frames = [Frame(path, int(line), function) for path, line, function in matches]
    return list(dict.fromkeys(frames))  # an error from several tasks contains each frame several times


def _frames_of_operation(error: BaseException) -> Iterable[Frame]:
    """Returns the frames that created the failed operation; for a gradient, the operation that it differentiates."""
    operation = getattr(error, "op", None)
    while operation is not None:
        # None for an operation that was imported, from a SavedModel for example.
        frames = [Frame(code.filename, code.lineno, code.name) for code in operation.traceback or ()]
        if _own(frames):
            return frames
        operation = getattr(operation, "_original_op", None)
    return []


def _own(frames: Iterable[Frame]) -> list[Frame]:
    """Returns the frames of the user's files or, if there are none, those of an installed plug-in."""
    candidates = [frame for frame in frames if _may_be_own(frame.path)]
    return [frame for frame in candidates if not _is_installed(frame.path)] or [
        frame for frame in candidates if not _FRAMEWORK.search(frame.path)]


def _may_be_own(path: str) -> bool:
    is_generated = path.startswith("<") or "__autograph_generated_file" in path
    is_library = path.startswith(_STANDARD_LIBRARY) and not _is_installed(path)
    return not is_generated and not is_library and not path.startswith(_PACKAGES)


def _is_installed(path: str) -> bool:
    return not {"site-packages", "dist-packages"}.isdisjoint(pathlib.Path(path).parts)


def _shown(frames: Sequence[Frame]) -> list[str]:
    shown = []
    for frame in frames:
        source = linecache.getline(frame.path, frame.line).strip()
        shown.append(f'  File "{frame.path}", line {frame.line}, in {frame.function}')
        shown += [f"    {source}"] * bool(source)
    return shown


def _causes(error: BaseException) -> list[str]:
    """Returns a line for each error in the user's code that led to this one."""
    lines: list[str] = []
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while cause is not None:
        frames = _raised(cause)
        if frames and not _is_of_tensorflow(cause):
            lines.insert(0, f"After {_headline(cause)} (line {frames[-1].line} of {frames[-1].path})")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return lines


def _headline(error: BaseException) -> str:
    """Returns the line that names the error."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    lines = telling_lines(error)
    if not lines:
        return type(error).__name__
    line = lines[-1] if "in user code:" in str(error) else lines[0]
    line = _FUNCTION_OF_DATASET.sub("", line)
    name = "" if re.match(r"[A-Za-z.]*(Error|Exception): ", line) else f"{type(error).__name__}: "
    return name + (line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}...")


def _fault(error: BaseException, frames: Sequence[Frame]) -> UserCodeError:
    """Returns the error that names the plug-in, its function, and what to do."""
    again = "then run the same command again"
    if not frames:
        return UserCodeError("dataset_function_failed",
                             f"a function that input_fn passes to its dataset failed: correct it, or its data, {again}")
    first, last = frames[0], frames[-1]
    module = _module_of(first.path)
    place = f"module {module}" if first.function == "<module>" else f"{module}.{first.function}"
    where = f"line {last.line} of {last.path}"
    operation = getattr(error, "op", None)
    if operation is not None and not _own(_frames_in(str(error))):
        return UserCodeError("operation_failed", f"{place}: operation {operation.name!r} failed in a step: look at "
                             f"{where} and at the data there, {again}")
    if _is_of_tensorflow(error):
        return UserCodeError("user_code_failed",
                             f"{place} failed in a step: correct {where}, or the data there, {again}")
    return UserCodeError("user_code_failed", f"{place} failed: correct {where}, {again}")


def _module_of(path: str) -> str:
    """Returns the dotted name of the module in a file."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == path and name != "__main__":
            return name
    return pathlib.Path(path).stem
