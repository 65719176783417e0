"""The command line of each task."""

from __future__ import annotations

import dataclasses
import re
import shlex

import pytest

from ps_train.config.launch import parse_launch
from ps_train.config.task import parse_task
from ps_train.launch import command_lines


def test_printed_commands_mean_what_the_tasks_are_told():
    """Through the shell and the flags' parser each command line gives its task's Config."""
    config, launch_config = parse_launch(["--num_ps=2", "--num_workers=1", "--sync_replicas", "--notf_log",
                                        "--params=a=b c,d=$HOME", "--learning_rate=1e-3", "--train_dir=/a b"])
    tasks = command_lines.task_list(launch_config)
    lines = command_lines.command_lines(tasks, [4001, 4002, 4003], config)
    assert (tasks.names, tasks.chief) == (["ps:0", "ps:1", "worker:0"], "worker:0")
    for name, line in zip(tasks.names, lines):
        parsed = parse_task(shlex.split(shlex.join(line)), {})
        assert f"{parsed.job_name}:{parsed.task_index}" == name
        assert (parsed.ps_hosts, parsed.worker_hosts) == ("localhost:4001,localhost:4002", "localhost:4003")
        for flag in config.given:
            assert getattr(parsed, flag) == getattr(config, flag)


def test_flags_that_were_not_given_are_not_repeated():
    """A command that a person would type says only what differs; --download_only is the launcher's own affair."""
    config, _ = parse_launch(["--download_only", "--batch_size=7"])
    assert command_lines.task_flags(config) == ["--batch_size=7"]


def test_the_command_that_continues_says_what_was_given_and_the_folder(monkeypatch, tmp_path):
    """Quoted for the shell, with the launcher's own flags, and for the verb that was launched."""
    monkeypatch.setattr(command_lines, "interpreter", lambda *arguments: "python")
    monkeypatch.chdir(tmp_path)
    config, launch_config = parse_launch(["--num_ps=1", "--num_workers=2", "--tmux", "--notf_log", "--params=a=b c"])
    config = dataclasses.replace(config, train_dir="/a b", given=config.given | {"train_dir"})
    keras = command_lines.TaskList([], "", ("keras",), {})
    for tasks, verb in ((command_lines.task_list(launch_config), ""), (keras, " keras")):
        first, second = command_lines.continuation(tasks, config, launch_config).splitlines()
        assert first == f"To continue this training, in {tmp_path}:"
        assert second == (f"  python -m ps_train launch{verb} --num_ps=1 --tmux '--params=a=b c' '--train_dir=/a b' "
                          "--notf_log")
    assert parse_launch(shlex.split(second)[5:]) == (config, launch_config)


def test_the_preparation_is_the_chief_that_trains_nothing():
    """So it builds the chief's graph; with --download_only, it only fetches the data."""
    config, launch_config = parse_launch(["--num_ps=1", "--num_workers=3", "--sync_replicas"])
    parsed = parse_task(command_lines.preparation(command_lines.task_list(launch_config), config), {})
    assert (parsed.job_name, parsed.task_index, parsed.download_only, parsed.sync_replicas) == ("worker", 0, True, True)
    assert parsed.worker_hosts.count(",") == 2
    config, launch_config = parse_launch(["--download_only"])
    assert command_lines.preparation(command_lines.task_list(launch_config), config) == ["--download_only"]


@pytest.mark.parametrize(("is_installed", "advice"), [
    (True, ""), (False, r"  \(it is not installed: \S+ -m pip install tensorboard\)")])
def test_the_command_that_opens_tensorboard(monkeypatch, is_installed, advice):
    """By the Python that trains; where TensorBoard is missing, with what installs it."""
    monkeypatch.setattr(command_lines.importlib.util, "find_spec", lambda name: object() if is_installed else None)
    assert re.fullmatch(rf"\S+ -m tensorboard.main '--logdir=/tmp/a b'{advice}", command_lines.tensorboard("/tmp/a b"))


@pytest.mark.parametrize(("executable", "working_dir", "expected"), [
    ("{bin}/python3", "/", "python"),
    ("/home/me/.venv/bin/python", "/home/me", ".venv/bin/python"),
    ("/home/me/.venv/bin/python", "/home/me/elsewhere", "/home/me/.venv/bin/python"),
])
def test_interpreter_is_named_as_a_person_would(tmp_path, executable, working_dir, expected):
    """Found by its bare name, then inside the working directory, else by its whole path."""
    (tmp_path / "python").touch(mode=0o755)
    assert command_lines.interpreter(executable.format(bin=tmp_path), working_dir, str(tmp_path)) == expected
