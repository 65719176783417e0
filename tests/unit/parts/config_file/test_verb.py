"""`ps_train config`: every flag, its value, and where that comes from."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from ps_train.config import fields, task
from ps_train.config.launch import PLACED_BY_LAUNCH, LaunchConfig, parse_launch
from ps_train.parts.config_file.reading import with_file_flags
from ps_train.parts.config_file.verb import effective_lines
from tests.children import REPO
from tests.processes import GUARD_SECS

TF_CONFIG = json.dumps({"cluster": {"ps": ["a:1"], "worker": ["b:2", "c:3"]}, "task": {"type": "worker", "index": 1}})


def shown(arguments, environ=None):
    """Returns name -> (value, source) of each flag in the lines."""
    with with_file_flags(arguments, arguments) as words:
        lines = effective_lines(words, environ or {})
    matches = [re.fullmatch(r"(?:# )?(\w+): ?(.*?) +# (.*)", line) for line in lines]
    return {match[1]: (match[2], match[3]) for match in matches if match}


def test_each_value_has_its_source(tmp_path):
    """The command line, a line of the file, a default, or what other flags say."""
    path = tmp_path / "run.yaml"
    path.write_text("train_steps: 5\nbatch_size: 6\nlearning_rate_schedule: piecewise\n"
                    "learning_rate_values: [0.5, 0.1]\nlearning_rate_boundaries: [3]\n")
    flags = shown([f"--config={path}", "--batch_size=7", "--num_ps=1"])
    assert flags["train_steps"] == ("5", f"{path}, line 1")
    assert flags["batch_size"] == ("7", "command line") == flags["batch_size"]
    assert flags["num_ps"] == ("1", "command line")
    assert flags["optimizer"] == ("adam", "default")
    assert flags["seed"] == ("", "default: a new one for each run")
    assert flags["learning_rate"] == ("0.5", "follows from other flags")


def test_the_flags_are_those_of_a_launch_or_of_a_task():
    """What places a task is shown if the task is placed, and what launches a cluster is not shown then."""
    of_launch, of_task = shown([]), shown(["--job_name=ps", "--task_index=0"])
    assert {*of_launch} == {*fields.rules(LaunchConfig, task.Config)} - PLACED_BY_LAUNCH
    assert {*of_task} == {*fields.rules(task.Config)}
    assert of_launch["train_dir"][0] == '""' and of_task["train_dir"][1] == "follows from other flags"


def test_tf_config_gives_the_cluster():
    """And is named as the source."""
    flags = shown([], {"TF_CONFIG": TF_CONFIG})
    assert flags["worker_hosts"] == ("b:2,c:3", "TF_CONFIG") and flags["job_name"] == ("worker", "TF_CONFIG")
    assert flags["task_index"] == ("1", "TF_CONFIG")


def test_a_scheduler_gives_the_cluster():
    """As --cluster_from asks for it."""
    flags = shown(["--cluster_from=env"], {
        "PS_TRAIN_JOB_NAME": "ps", "PS_TRAIN_TASK_INDEX": "0", "PS_TRAIN_PS_HOSTS": "a:1",
        "PS_TRAIN_WORKER_HOSTS": "b:2"})
    assert flags["ps_hosts"] == ("a:1", "the scheduler's variables")
    assert flags["cluster_from"] == ("env", "command line")


def test_what_it_prints_can_be_a_config_file(tmp_path):
    """It says the same again: the flags that were given are given, the others are comments."""
    arguments = ["--num_ps=1", "--train_steps=5", "--params=a=1,b=x y", "--accept_params=", "--model=~",
                 "--sync_replicas", "--learning_rate=1e-9", "--nofused_transfers", "--train_dir=a #b: 'c'"]
    path = tmp_path / "run.yaml"
    path.write_text("\n".join(effective_lines(arguments, {})))
    with with_file_flags([f"--config={path}"], [f"--config={path}"]) as words:
        assert parse_launch(words) == parse_launch(arguments)


@pytest.mark.parametrize(("words", "is_json"), [
    (["launch", "--train_steps=0"], True), (["launch", "--train_steps=0", "--log_format=ps_train"], False),
    (["launch", "--train_steps=0", "--log_format", "ps_train"], False), (["plan", "--batch_size=x"], False)])
def test_the_log_format_of_a_file_counts_if_none_is_typed(tmp_path, words, is_json):
    """And for verbs that have a log: what `config` or `status` prints is not one."""
    (tmp_path / "run.json").write_text('{"log_format": "json"}')
    ended = subprocess.run([sys.executable, "-m", "ps_train", *words, f"--config={tmp_path}/run.json"],
                           capture_output=True, text=True, timeout=GUARD_SECS, cwd=REPO)
    assert ended.returncode == 2
    assert ended.stderr.startswith('{"time"') is is_json, ended.stderr
