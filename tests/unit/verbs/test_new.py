"""`ps_train new`: the files that it writes, and the command that it recommends."""

from __future__ import annotations

import re
import shlex

from ps_train import __main__ as command_line
from ps_train.config import launch
from ps_train.runtime import logs


def test_the_printed_command_names_the_folder_that_the_readme_goes_on_with(tmp_path, monkeypatch, capsys):
    """So `evaluate`, `predict` and `export` of the README find the checkpoint."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(logs, "setup", lambda: None)  # its handler would outlive the test
    assert command_line.main(["new", "mine"]) == 0
    [command] = re.findall(r"ps_train launch (.*)", capsys.readouterr().out)
    task_config, _ = launch.parse_launch(shlex.split(command))
    readme = (tmp_path / "mine/README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"--train_dir=(\S+)", readme)) == {task_config.train_dir}
