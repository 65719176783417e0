"""Where the flags of `ps_train run` end and the script begins."""

from __future__ import annotations

import json
import os
import pathlib
import types

import pytest

from ps_train import __main__ as command_line
from ps_train.parts.legacy import verb
from ps_train.parts.legacy.flags import Script, ScriptConfig, ScriptLaunchConfig, before_script, split_script
from ps_train.runtime import installed, logs
from tests.errors import raises

_SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "scripts"


@pytest.mark.parametrize(("line", "own", "script"), [
    ("x.py", [], Script("x.py", False, ())),
    ("x.py --help --version", [], Script("x.py", False, ("--help", "--version"))),
    ("--tf_log x.py y", ["--tf_log"], Script("x.py", False, ("y",))),
    ("--num_ps=2 x.py --num_ps 3", ["--num_ps=2"], Script("x.py", False, ("--num_ps", "3"))),
    ("--num_ps 2 --evaluator x.py", ["--num_ps", "2", "--evaluator"], Script("x.py", False, ())),
    ("-num_ps 2 x.py", ["-num_ps", "2"], Script("x.py", False, ())),
    ("--unknown x.py", ["--unknown"], Script("x.py", False, ())),
    ("--tf_log -m pack.age -m", ["--tf_log"], Script("pack.age", True, ("-m",))),
])
def test_what_stands_behind_the_script_is_its_own(line, own, script):
    """A flag takes the next word as its value, unless it is a boolean or has a value."""
    assert split_script(line.split(), "launch run", ScriptLaunchConfig) == (own, script)
    assert [*own, *script.words] == line.split()


@pytest.mark.parametrize("line", ["", "--tf_log", "-m", "--start_timeout_secs", "--start_timeout_secs 3"])
def test_without_a_script_all_words_are_flags(line):
    """The command line is refused."""
    assert before_script(line.split(), ScriptConfig) == [word for word in line.split() if word != "-m"]
    with raises("script_missing"):
        split_script(line.split(), "run", ScriptConfig)


@pytest.mark.parametrize(("words", "message"), [
    (["run"], "[script_missing]"),
    (["run", "--start_timeout_secs", "3", "nowhere.py", "--version"], "[script_not_found]"),
    (["run", "--nowhere=3", "x.py"], "[flag_unknown]"),
    (["run", "-m", "sys"], "[script_not_found]"),
    (["launch", "run", "--log_dir=/dev/null/logs", str(_SCRIPTS / "monitored.py")],
     "[folder_not_writable]"),
    (["run", "--start_timeout_sec=3", "x.py"], "did you mean --start_timeout_secs?"),
    (["launch", "run", "--env=A=1", str(_SCRIPTS / "monitored.py")], "--env: has an effect only with --hosts"),
    (["launch", "run", "--hosts=a:1,b:1", str(_SCRIPTS / "monitored.py")], "--hosts: 3 tasks, but 2 slots"),
    (["launch", "run", "--num_ps=-1", str(_SCRIPTS / "monitored.py")], "--num_ps: got -1"),
    (["launch", "run", "--hosts_flags=ps_hosts=servers", str(_SCRIPTS / "supervised.py")],
     "[script_without_flag]"),
])
def test_a_wrong_command_line_is_refused(monkeypatch, capsys, words, message):
    """One line, exit code 2."""
    monkeypatch.setattr(logs, "setup", lambda: None)
    assert command_line.main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize(("given", "expected"), [(None, "0"), ("7", "7"), ("random", "random")])
def test_all_tasks_hash_text_alike(monkeypatch, given, expected):
    """Issue: a vocabulary of list(set(words)) had another order in each task, and after a restart."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if given:
        monkeypatch.setenv("PYTHONHASHSEED", given)
    hosts = types.SimpleNamespace(command=lambda name, words, variables: variables["PYTHONHASHSEED"])
    commands = [verb._command(name, {"worker": ["a:1", "b:1"]}, Script("train.py", False, ()), (), flags={},
                              variables=["TF_CONFIG"], machines=hosts) for name in ("worker:0", "worker:1")]
    for command in commands:
        assert (command.command, command.environ["PYTHONHASHSEED"]) == (expected, expected)


PLACED = 'server = tf.train.Server(cluster, FLAGS.job, FLAGS.task)\n'


def defined(*names):
    """Returns the text of a script that defines flags."""
    return "".join(f'parser.add_argument("--{name}")\n' for name in names)


@pytest.mark.parametrize(("text", "named", "expected"), [
    (PLACED + defined("ps_hosts", "worker_hosts", "job_name", "task_id"), "",
     {"ps_hosts": "ps_hosts", "worker_hosts": "worker_hosts", "job_name": "job_name", "task_index": "task_id"}),
    (PLACED + defined("ps-hosts", "worker-hosts", "job-name", "task-index", "task"), "",
     {"ps_hosts": "ps-hosts", "worker_hosts": "worker-hosts", "job_name": "job-name", "task_index": "task-index"}),
    (PLACED + defined("job", "task"), "", {"job_name": "job", "task_index": "task"}),
    (PLACED + defined("job_name", "task_index", "job", "task"), "",
     {"job_name": "job_name", "task_index": "task_index"}),
    (PLACED + defined("job_name", "task_id", "number"), "task_index=number",
     {"job_name": "job_name", "task_index": "number"}),
    (PLACED + defined("task"), "", {}),
    (defined("job", "task"), "", {}),
    (defined("worker_hosts", "job_name", "task_id"), "",
     {"worker_hosts": "worker_hosts", "job_name": "job_name", "task_index": "task_id"}),
], ids=["task_id", "dashes", "short", "ours first", "named", "no job", "no server", "no server, but addresses"])
def test_flags_of_a_cluster_are_found_by_other_names_that_scripts_have(text, named, expected):
    """Issue: a script with `task_id` got no index, so each worker was task 0, and the second found its port busy."""
    assert verb._cluster_flags_of(ScriptLaunchConfig(hosts_flags=named), text) == expected


@pytest.mark.parametrize(("chief_job", "chief_flags"), [
    ("worker", []), ("chief", ["--chief_hosts=b:1"]), ("master", ["--chief_hosts=b:1"])])
def test_a_script_gets_the_address_of_the_chief(chief_job, chief_flags):
    """Issue: a script with the flag made a TF_CONFIG whose chief had no address. Without a chief, its default stays."""
    cluster = {"ps": ["a:1"], chief_job: ["b:1"]}
    flags = verb._cluster_flags_of(ScriptLaunchConfig(), defined("ps_hosts", "job_name", "chief_hosts"))
    hosts = types.SimpleNamespace(command=lambda name, words, variables: words)
    words = verb._command(f"{chief_job}:0", cluster, Script("train.py", False, ()), (), flags=flags, machines=hosts,
                          variables=()).command
    assert words == ["run", "train.py", "--ps_hosts=a:1", f"--job_name={chief_job}", *chief_flags]


@pytest.mark.parametrize(("text", "expected"), [
    ('os.environ["CLUSTER_SPEC"], os.environ["JOB_NAME"], os.environ["TASK_INDEX"]',
     {"CLUSTER_SPEC", "JOB_NAME", "TASK_INDEX"}),
    ("if 'TF_CLUSTER_DEF' in os.environ:\n    os.getenv('TF_ROLE'), os.getenv('TF_INDEX')",
     {"TF_CLUSTER_DEF", "TF_ROLE", "TF_INDEX"}),
    ('os.environ["PS_HOSTS"], os.environ["WORKER_HOSTS"], os.environ["JOB_NAME"], os.environ["TASK_ID"]',
     {"PS_HOSTS", "WORKER_HOSTS", "JOB_NAME", "TASK_ID"}),
    ('os.environ["JOB_NAME"], os.environ["TASK_ID"]', set()),
    ('CLUSTER_SPEC, JOB_NAME = {}, "worker"', set()),
], ids=["TonY", "XLearning", "lists", "no addresses", "no strings"])
def test_variables_of_other_launchers_are_found(text, expected):
    """Issue: such a script got TF_CONFIG only, and ended with a KeyError or trained by itself."""
    assert verb._other_variables_in(text) == expected


@pytest.mark.parametrize(("chief_job", "names"), [
    ("worker", ["ps:0", "worker:0", "worker:1"]), ("chief", ["ps:0", "chief:0", "worker:0"])])
def test_variables_of_other_launchers_call_the_chief_worker_0(chief_job, names):
    """They know ps and workers; a script may make a chief of worker 0 itself, for an Estimator."""
    cluster = {"ps": ["a:1"], chief_job: ["b:1"], "worker": ["b:1", "c:1"] if chief_job == "worker" else ["c:1"]}
    hosts = types.SimpleNamespace(command=lambda name, words, variables: variables)
    places = []
    for name in names:
        given = verb._command(name, cluster, Script("train.py", False, ()), (), flags={}, machines=hosts,
                              variables={"CLUSTER_SPEC", "TF_ROLE", "TASK_ID"}).command
        assert json.loads(given["CLUSTER_SPEC"]) == {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
        assert not {"TF_CONFIG", "TF_CLUSTER_DEF", "JOB_NAME"} & set(given)
        places.append((given["TF_ROLE"], given["TASK_ID"]))
    assert places == [("ps", "0"), ("worker", "0"), ("worker", "1")]


@pytest.mark.parametrize(("text", "given", "expected", "is_said"), [
    ("import keras\ntf.keras.Sequential()", None, "0", True),
    ("import keras\nfrom tensorflow import keras as old", None, "0", True),
    ("import keras\nkeras.Sequential()", None, "0", False),
    ("import keras\ntf.keras.Sequential()", "1", "1", False),
    ("from keras import datasets\ntf.keras.Sequential()", None, None, False),
])
def test_a_line_says_that_tf_keras_is_another_one_than_by_default(
    tmp_path, monkeypatch, capsys, text, given, expected, is_said
):
    """Issue: an import of Keras's data changed what `model.save` writes, and nothing said so."""
    monkeypatch.setenv(installed.KERAS_VARIABLE, given or "")
    if given is None:
        monkeypatch.delenv(installed.KERAS_VARIABLE)
    path = tmp_path / "main.py"
    path.write_text(text)
    verb._choose_keras(ScriptConfig(), Script(str(path), False, ()))
    assert os.environ.get(installed.KERAS_VARIABLE) == expected
    assert (f"set {installed.KERAS_VARIABLE}=1" in capsys.readouterr().err) is is_said
