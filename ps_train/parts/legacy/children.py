"""Runs the TensorFlow 1 scripts that a script starts as processes of their own as it runs itself.

    subprocess.Popen(["python", "worker.py", "--task=1"])  [this Python, "-m", "ps_train", "run", "worker.py", ...]
    os.system("python worker.py --task=1 &")               the same within the line

Such scripts start a ps and the workers of a cluster on one machine, which plain TensorFlow of today cannot run. A
command stays as it is if its file is not there or does not use TensorFlow, and if it goes to another machine.

A process that `multiprocessing` starts anew, by "spawn" or "forkserver", gets code with its data. It
prepares the process before that loads the script's file as "__mp_main__".
"""

from __future__ import annotations

import functools
import inspect
import multiprocessing.spawn
import os
import pathlib
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import ps_train
from ps_train.config import fields
from ps_train.parts.legacy import source
from ps_train.parts.legacy.flags import Script, ScriptConfig

_PYTHON = r"python(\d[\d.]*)?"
_OPTIONS = re.compile(r"-[uOBEsSdiv]+")  # of Python, which take no value
_IN_LINE = re.compile(rf"(?<![\w./-])(?P<python>(?:[\w./~-]*/)?{_PYTHON})(?P<options>(?:\s+-[uOBEsSdiv]+)*)\s+"
                      r"(?P<name>-m\s+[\w.]+|[\w./~-]+\.py)(?=[\s;&|)'\"]|$)")
_ELSEWHERE = re.compile(r"(?<![\w./-])(ssh|docker|kubectl|srun)\b")
_USES = re.compile(r"^\s*(import|from)\s+(tensorflow|keras|horovod)\b", re.MULTILINE)
_MAKE = inspect.signature(subprocess.Popen.__init__)


class Children:
    """What makes the command of a script's child process one of `ps_train run`."""

    def __init__(self, config: ScriptConfig) -> None:
        """Takes the flags of this process, which the children get, too."""
        self._tf_mode = config.tf_mode
        self._words = ["-m", "ps_train", "run", *_flags_of(config)]

    def install(self) -> None:
        """Changes the commands that this process starts from now on."""
        popen, system = subprocess.Popen.__init__, os.system

        @functools.wraps(popen)
        def init(process: Any, *args: Any, **kwargs: Any) -> None:
            bound = _MAKE.bind(process, *args, **kwargs)
            given = bound.arguments
            if not isinstance(given["args"], (str, bytes, os.PathLike, Sequence)):
                given["args"] = list(given["args"])  # an iterator, which can be read once
            if not given.get("executable"):
                command = self.changed(given["args"], given.get("shell", False), given.get("cwd"))
                if command != given["args"]:
                    given["args"] = command
                    given["env"] = _with_ps_train(given.get("env"))
            popen(*bound.args, **bound.kwargs)

        subprocess.Popen.__init__ = init  # type: ignore[method-assign]
        os.system = lambda command: system(_with_path(self.changed(command, is_line=True), command))

    def changed(self, command: Any, is_line: bool, folder: Any = None) -> Any:
        """Returns a command as `subprocess` takes it: words, or a line if it is for a shell."""
        if isinstance(command, (str, bytes, os.PathLike)):
            line = os.fsdecode(command)
            changed = self.changed_line(line, folder) if is_line else line
            return command if changed == line else changed
        words = [os.fspath(word) for word in command]
        if is_line or not all(isinstance(word, str) for word in words):
            return command
        return self._changed_words(words, folder) or command

    def _changed_words(self, words: Sequence[str], folder: Any) -> list[str] | None:
        """Returns the words of a command that is changed, else None."""
        if not words or not (words[0] == sys.executable or re.fullmatch(_PYTHON, os.path.basename(words[0]))):
            return None
        end = 1
        while end < len(words) and _OPTIONS.fullmatch(words[end]):
            end += 1
        name = words[end:end + 2] if words[end:end + 1] == ["-m"] else words[end:end + 1]
        if not self._is_tensorflow_1(name, folder):
            return None
        return [sys.executable, *words[1:end], *self._words, *words[end:]]

    def changed_line(self, line: str, folder: Any) -> str:
        """Returns a line for a shell, with the commands in it that are changed."""
        if _ELSEWHERE.search(line):
            return line

        def change(found: re.Match[str]) -> str:
            if not self._is_tensorflow_1(found["name"].split(), folder):
                return found[0]
            return f"{shlex.join([sys.executable])}{found['options']} {shlex.join(self._words)} {found['name']}"
        return _IN_LINE.sub(change, line)

    def _is_tensorflow_1(self, name: Sequence[str], folder: Any) -> bool:
        """Returns whether a file, or with -m a module, is a script of TensorFlow 1."""
        is_module = name[:1] == ["-m"]
        if not name or len(name) <= is_module:
            return False
        written = name[1].replace(".", "/") + ".py" if is_module else name[0]
        path = pathlib.Path(os.fspath(folder or "."), os.path.expanduser(written))
        if path.suffix != ".py" or not path.is_file():
            return False
        text = source.text_with_imports(path, Script(str(path), False, ()))
        return bool(_USES.search(text)) and source.is_tensorflow_1(self._tf_mode, text)


def _flags_of(config: ScriptConfig) -> list[str]:
    names = [name for name, (_, _, default) in fields.rules(ScriptConfig).items() if getattr(config, name) != default]
    return fields.as_flags(config, names)


def _root() -> str:
    return str(pathlib.Path(ps_train.__file__).parents[1])


def _with_ps_train(env: Any) -> dict[str, str]:
    """Returns an environment, by default this process's own, in which Python finds ps_train."""
    variables = dict(os.environ if env is None else env)
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH", ""), _root()]))
    return variables


def _with_path(line: Any, before: Any) -> Any:
    """Returns a line that has been changed with the place of ps_train in its environment."""
    if line is before:
        return line
    return f"export PYTHONPATH={shlex.quote(_root())}${{PYTHONPATH:+:$PYTHONPATH}}; {line}"


def adopt_children(config: ScriptConfig) -> Callable[[], None]:
    """Lets the children of this process run as it does; returns what takes it back."""
    popen, system = subprocess.Popen.__init__, os.system
    Children(config).install()

    def take_back() -> None:
        subprocess.Popen.__init__, os.system = popen, system  # type: ignore[method-assign]
    return take_back


class _Preparation:
    """Becomes a call of `verb.prepare_spawned` where it is unpickled."""

    def __init__(self, flags: Sequence[str]) -> None:
        self._flags = list(flags)

    def __reduce__(self) -> tuple[Any, tuple[str, dict]]:
        # Code, and not the function: the child may not find ps_train yet.
        return exec, (f"import sys\nsys.path.append({_root()!r})\nfrom ps_train.parts.legacy import verb\n"
                      f"verb.prepare_spawned({self._flags!r})\n", {})


def adopt_spawned(config: ScriptConfig) -> None:
    """Lets the processes that `multiprocessing` starts anew from now on run as this one does.

    Args:
      config: the flags of this process; `python2` says whether its script is converted.
    """
    preparation, original = _Preparation(_flags_of(config)), multiprocessing.spawn.get_preparation_data

    @functools.wraps(original)
    def with_preparation(name: str) -> dict[str, Any]:
        return {**original(name), "ps_train": preparation}

    multiprocessing.spawn.get_preparation_data = with_preparation
    # From Python 3.13.8 on, the fork server itself would run the script's file first, which is not prepared there.
    multiprocessing.set_forkserver_preload([])
