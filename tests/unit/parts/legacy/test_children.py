"""The commands of processes that a script starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ps_train.parts.legacy import children
from ps_train.parts.legacy.children import Children
from ps_train.parts.legacy.flags import ScriptConfig

RUN = ["-m", "ps_train", "run"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with scripts of TensorFlow 1 and others."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "worker.py").write_text("import tensorflow as tf\ntf.app.run()\n")
    (tmp_path / "pkg/worker.py").write_text("import tensorflow as tf\ntf.placeholder\n")
    (tmp_path / "by_import.py").write_text("import worker\nworker.main()\n")
    (tmp_path / "setup.py").write_text("setup(install_requires=['tensorflow==1.4'])\n")
    (tmp_path / "keras2.py").write_text("import tensorflow as tf\ntf.keras.Sequential()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(command, is_line=False, folder=None, **flags):
    """Returns the changed command."""
    return Children(ScriptConfig(**flags)).changed(command, is_line, folder)


@pytest.mark.parametrize("python", ["python", "python3", "python2.7", "/usr/bin/python3.6", sys.executable])
def test_a_script_of_tensorflow_1_becomes_a_task_of_this_python(python):
    """Whichever Python the script names, with its options, arguments and flags of this process."""
    assert changed([python, "worker.py", "--job_name=ps", "x y"]) == [
        sys.executable, *RUN, "worker.py", "--job_name=ps", "x y"]
    assert changed((python, "-u", "-m", "pkg.worker", "5")) == [sys.executable, "-u", *RUN, "-m", "pkg.worker", "5"]
    assert changed([python, "by_import.py"], python2=True, stop_timeout_secs=7.0) == [
        sys.executable, *RUN, "--python2", "--stop_timeout_secs=7.0", "by_import.py"]


def test_a_script_is_looked_for_where_it_will_run(folder):
    """In the folder that the process gets."""
    assert changed(["python", "worker.py"], folder=folder / "pkg") == [sys.executable, *RUN, "worker.py"]
    assert changed(["python", "by_import.py"], folder=str(folder / "pkg")) == ["python", "by_import.py"]


@pytest.mark.parametrize("command", [
    ["python", "setup.py", "sdist"], ["python", "keras2.py"], ["python", "missing.py"], ["python", "-c", "import x"],
    ["python", "-m", "pip", "install"], ["python"], ["pythonic", "worker.py"], ["nvidia-smi"], [],
    ["python", "-m", "ps_train", "run", "worker.py"], ["python", "-m"], ["sh", "run.sh"], [b"python", b"worker.py"],
    "python worker.py", b"python worker.py"])
def test_other_commands_stay(command):
    """Those of other programs, of files without TensorFlow 1, and what is no line for a shell."""
    assert changed(command) is command


def test_commands_in_a_line_are_changed():
    """Behind variables, before a redirection, several of them, and within a word of another program."""
    run = f"{sys.executable} {' '.join(RUN)}"
    assert changed("CUDA_VISIBLE_DEVICES= python worker.py --x=1 > log 2>&1 &", is_line=True) == (
        f"CUDA_VISIBLE_DEVICES= {run} worker.py --x=1 > log 2>&1 &")
    assert changed("python -u ./worker.py; nohup /usr/bin/python3 -m pkg.worker&", is_line=True) == (
        f"{sys.executable} -u {' '.join(RUN)} ./worker.py; nohup {run} -m pkg.worker&")
    assert changed("tmux send-keys 'python worker.py' Enter", is_line=True) == (
        f"tmux send-keys '{run} worker.py' Enter")


@pytest.mark.parametrize("line", [
    "ssh host 'cd x && python worker.py'", "docker run image python worker.py", "python setup.py && python missing.py",
    "cat worker.py", "mypython worker.py", "python worker.pyc"])
def test_other_lines_stay(line):
    """Those for another machine, too, and lines of bytes."""
    assert changed(line, is_line=True) is line
    encoded = line.encode()
    assert changed(encoded, is_line=True) is encoded


def test_processes_are_started_by_the_changed_command(tmp_path, monkeypatch):
    """By `subprocess` and `os.system`, with ps_train on the path of an environment of their own; others as before.

    Issue: an iterator of words was read before `subprocess` read it, and a line of bytes failed.
    """
    calls = []
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda process, *args, **kwargs: calls.append((args, kwargs)))
    monkeypatch.setattr(os, "system", lambda line: calls.append(line) or 7)
    monkeypatch.setattr(subprocess.Popen, "__del__", lambda process: None)
    take_back = children.adopt_children(ScriptConfig())
    try:
        subprocess.Popen(["python", "worker.py"], env={"A": "b"}, cwd=None)
        assert os.system("python worker.py &") == 7
        assert os.system("true") == 7
        subprocess.Popen("true", shell=True)
        assert os.system(b"python worker.py &") == 7
        assert os.system(b"\xff") == 7
        subprocess.Popen(map(str, ["echo", 5]))
        subprocess.Popen(iter(["python", "worker.py"]))
    finally:
        take_back()
    (args, kwargs), line, other, (plain, _), *more = calls
    assert more[:2] == [line, b"\xff"] and more[2][0][0] == ["echo", "5"]
    assert more[3][0][0] == [sys.executable, *RUN, "worker.py"]
    given = dict(zip(("args",), args), **kwargs)
    assert given["args"] == [sys.executable, *RUN, "worker.py"]
    assert given["env"]["A"] == "b" and children._root() in given["env"]["PYTHONPATH"].split(os.pathsep)
    assert line.endswith(f"{sys.executable} -m ps_train run worker.py &") and children._root() in line
    assert other == "true" and plain[0] == "true"
