"""The command line of each task."""

from __future__ import annotations

import shlex

import pytest

from ps_train import commands
from ps_train.config import parse_launch, parse_task


def test_printed_commands_mean_what_the_tasks_are_told():
    """Through the shell and the flags' parser each command line gives its task's Config."""
    told, launch_config = parse_launch(["--num_ps=2", "--num_workers=1", "--sync_replicas", "--notf_log",
                                        "--params=a=b c,d=$HOME", "--learning_rate=1e-3", "--train_dir=/a b"])
    crew = commands.crew_of(launch_config)
    lines = commands.command_lines(crew, [4001, 4002, 4003], told)
    assert (crew.names, crew.chief) == (["ps:0", "ps:1", "worker:0"], "worker:0")
    for name, line in zip(crew.names, lines):
        parsed = parse_task(shlex.split(shlex.join(line)), {})
        assert f"{parsed.job_name}:{parsed.task_index}" == name
        assert (parsed.ps_hosts, parsed.worker_hosts) == ("localhost:4001,localhost:4002", "localhost:4003")
        for flag in told.given:
            assert getattr(parsed, flag) == getattr(told, flag)


def test_flags_that_were_not_given_are_not_repeated():
    """A command that a person would type says only what differs; --download_only is the launcher's own affair."""
    told, _ = parse_launch(["--download_only", "--batch_size=7"])
    assert commands.task_flags(told) == ["--batch_size=7"]


@pytest.mark.parametrize(("executable", "working_dir", "expected"), [
    ("{bin}/python3", "/", "python"),
    ("/home/me/.venv/bin/python", "/home/me", ".venv/bin/python"),
    ("/home/me/.venv/bin/python", "/home/me/elsewhere", "/home/me/.venv/bin/python"),
])
def test_interpreter_is_named_as_a_person_would(tmp_path, executable, working_dir, expected):
    """Found by its bare name, then inside the working directory, else by its whole path."""
    (tmp_path / "python").touch(mode=0o755)
    assert commands.interpreter(executable.format(bin=tmp_path), working_dir, str(tmp_path)) == expected
