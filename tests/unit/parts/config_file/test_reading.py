"""Flags in a file: the same values, checks and error lines as on the command line, with the line of the file."""

from __future__ import annotations

import sys

import pytest

from ps_train import __main__ as command_line
from ps_train.config import fields, launch, task
from ps_train.launch.training import Training
from ps_train.parts.config_file.reading import read_flags, with_file_flags
from ps_train.parts.keras.flags import parse_keras_task
from ps_train.parts.legacy.flags import ScriptConfig, before_script
from tests.errors import codes_of, error_of, raises

needs_toml = pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
YAML = """\
# a training
train_steps: 500
learning_rate: 1e-3
sync_replicas: true
seed:
ps_hosts:
  - a:1
  - b:2
params:
  noise: 0.5
  name: yes
num_ps: 2
"""
TOML = """\
# a training
train_steps = 500
learning_rate = 1e-3
sync_replicas = true
ps_hosts = ["a:1", "b:2"]
num_ps = 2
[params]
noise = 0.5
name = "yes"
"""
JSON = """\
{
  "train_steps": 500,
  "learning_rate": 1e-3, "sync_replicas": true, "seed": null,
  "ps_hosts": ["a:1", "b:2"],
  "params": {"noise": 0.5, "name": "yes"},
  "num_ps": 2
}
"""
FORMATS = [("run.yaml", YAML), ("run.yml", YAML), pytest.param("run.toml", TOML, marks=needs_toml), ("run.json", JSON)]


def written(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def words_of(*arguments):
    with with_file_flags(arguments, arguments) as words:
        return words


@pytest.mark.parametrize(("name", "text"), FORMATS)
def test_a_file_says_what_a_command_line_says(tmp_path, name, text):
    """In each format, with a list, a mapping, a number that is taken as it is written, and a flag without a value."""
    expected = task.parse_task(["--train_steps=500", "--learning_rate=1e-3", "--sync_replicas", "--ps_hosts=a:1,b:2",
                                "--params=noise=0.5,name=yes"], {})
    assert task.parse_task(words_of(f"--config={written(tmp_path, name, text)}"), {}) == expected


@pytest.mark.parametrize(("name", "text"), FORMATS)
def test_a_file_may_begin_with_a_byte_order_mark(tmp_path, name, text):
    """As an editor on Windows writes it."""
    marked, plain = (read_flags(written(tmp_path, name, f"{mark}{text}")) for mark in ("\ufeff", ""))
    assert [(flag, flag.line) for flag in marked] == [(flag, flag.line) for flag in plain]


@pytest.mark.parametrize(("name", "text"), FORMATS)
def test_each_flag_knows_its_line(tmp_path, name, text):
    """Its place is the line on which its name stands."""
    lines = text.splitlines()
    for flag in read_flags(written(tmp_path, name, text)):
        assert flag.name in lines[flag.line - 1]


@pytest.mark.parametrize("arguments", [["--train_steps=9"], ["--train_steps", "9"], ["--nosync_replicas"],
                                       ["--flagfile=FLAGS"]])
def test_the_command_line_replaces_a_flag_of_the_file(tmp_path, arguments):
    """However it is written there; the other flags of the file stay."""
    path = written(tmp_path, "run.yaml", YAML)
    arguments = [word.replace("FLAGS", written(tmp_path, "flags", "--train_steps=9\n")) for word in arguments]
    for words in (words_of("--config", path, *arguments), words_of(*arguments, f"-config={path}")):
        config = task.parse_task(words, {})
        is_bool = arguments == ["--nosync_replicas"]
        assert (config.train_steps, config.sync_replicas) == ((500, False) if is_bool else (9, True))
        assert config.learning_rate == 1e-3


def test_one_file_serves_launch_a_task_and_other_verbs(tmp_path):
    """A verb leaves out those flags of `train` and `launch` that it does not have, and takes its own."""
    path = written(tmp_path, "run.yaml", "num_ps: 3\ntrain_steps: 7\nsync_replicas: true\n")
    config, launch_config = launch.parse_launch(words_of(f"--config={path}"))
    assert (launch_config.num_ps, config.train_steps) == (3, 7)
    assert task.parse_task(words_of(f"--config={path}"), {}).train_steps == 7
    assert parse_keras_task(words_of(f"--config={path}"), {}).train_steps == 7
    own = written(tmp_path, "own.yaml", "strategy: mirrored\n")
    assert parse_keras_task(words_of(f"--config={own}"), {}).strategy == "mirrored"
    assert error_of(task.parse_task, words_of(f"--config={own}"), {}).code == "flag_unknown"


def test_the_flags_stand_before_a_script(tmp_path):
    """Those behind the script are the script's own, --config among them."""
    path = written(tmp_path, "run.json", '{"tf_mode": "1"}')
    arguments = [f"--config={path}", "script.py", "--config=its_own"]
    with with_file_flags(arguments, before_script(arguments, ScriptConfig)) as words:
        assert words == ["--tf_mode=1", "script.py", "--config=its_own"]
    with with_file_flags(["run", *arguments], before_script(arguments, ScriptConfig)) as words:
        assert words == ["run", "--tf_mode=1", "script.py", "--config=its_own"]
    with with_file_flags(arguments[1:], []) as words:
        assert words == arguments[1:]


@pytest.mark.parametrize(("text", "arguments", "code", "end"), [
    ("train_steps: 5a", [], "flag_out_of_range", "(PATH, line 1)"),
    ("# steps\n\ntrain_steps: 0", [], "flag_out_of_range", "(PATH, line 3)"),
    ("trian_steps: 5", [], "flag_unknown", "(PATH, line 1)"),
    ("sync_replicas: yes", [], "flag_out_of_range", "(PATH, line 1)"),
    ("staleness_bound: 4\nsync_replicas: true", [], "flags_conflict", "(PATH, lines 1 and 2)"),
    ("staleness_bound: 4", ["--sync_replicas"], "flags_conflict", "(PATH, line 1)"),
    ("train_steps: 5", ["--train_steps=0"], "flag_out_of_range", "at least 1"),
])
def test_an_error_has_the_line_of_the_file(tmp_path, capsys, text, arguments, code, end):
    """The line that the command line would give, and where the flag stands; not if the command line replaces it."""
    path = written(tmp_path, "run.yaml", text)
    assert command_line.main(["launch", *arguments, f"--config={path}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.endswith(f"{end.replace('PATH', path)} [{code}]")


def test_an_error_reads_as_that_of_the_command_line(tmp_path):
    """But for the place."""
    path = written(tmp_path, "run.json", '{"train_steps": 0,\n "batch_size": -1}')
    expected = error_of(task.parse_task, ["--train_steps=0", "--batch_size=-1"], {})
    with raises("flag_out_of_range", "flag_out_of_range") as caught, with_file_flags(
            [f"--config={path}"], [f"--config={path}"]) as words:
        task.parse_task(words, {})
    assert list(caught.value.problems) == [f"{problem} ({path}, line {line})"
                                           for line, problem in enumerate(expected.problems, 1)]


@pytest.mark.parametrize(("name", "content", "code", "place"), [
    ("run.yaml", "train_steps: [1", "config_file_malformed", "line 1"),
    ("run.yaml", "a: 1\n b: 2", "config_file_malformed", "line 2"),
    ("run.yaml", "- 1", "config_file_malformed", "line 1"),
    ("run.yaml", "? [a]\n: 1", "config_file_malformed", "line 1"),
    ("run.yaml", "a: \x00", "config_file_malformed", "line 1"),
    ("run.yaml", "params: {a: {b: 1}}", "config_value_malformed", "line 1"),
    ("run.yaml", "seed: 1\nps_hosts: [a, ]\nseed: 2", "flag_given_twice", "line 3"),
    ("run.yaml", "ps_hosts: [a, ~]", "config_value_malformed", "line 1"),
    ("run.yaml", "ps_hosts: &a [*a]", "config_value_malformed", "line 1"),
    pytest.param("run.toml", "seed = 1\nseed = ", "config_file_malformed", "line 2", marks=needs_toml),
    pytest.param("run.toml", "[params.a]\nb = 1", "config_value_malformed", "line 1", marks=needs_toml),
    ("run.json", '{"seed": 1,\n:}', "config_file_malformed", "line 2"),
    ("run.json", "[1]", "config_file_malformed", "line 1"),
    ("run.json", '{"seed": 1,\n"seed": 2}', "flag_given_twice", "run.json"),
    ("run.json", '{"ps_hosts": [["a"]]}', "config_value_malformed", "line 1"),
    ("run.json", b"\xff\xfe", "config_file_malformed", "UTF-8"),
    ("run.cfg", "seed: 1", "flag_malformed", ".yaml, .yml, .toml, .json"),
    ("absent.yaml", None, "config_file_unreadable", "absent.yaml"),
])
def test_a_file_that_says_nothing_clear_is_refused(tmp_path, name, content, code, place):
    """In one line, with the line of the file if there is one."""
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    error = error_of(read_flags, str(path))
    assert codes_of(error) == [code] and place in str(error) and "\n" not in str(error)


def test_config_is_given_once_and_with_a_file(tmp_path):
    """A second one is refused, and so is one without a value."""
    path = written(tmp_path, "run.yaml", "")
    assert words_of(f"--config={path}", "--seed=1") == ["--seed=1"]
    assert error_of(words_of, f"--config={path}", f"--config={path}").code == "flag_given_twice"
    assert error_of(words_of, "--config").code == "flag_malformed"


@pytest.mark.parametrize(("name", "module", "advice"), [
    ("run.yaml", "yaml", "pip install pyyaml"), ("run.toml", "tomllib", "Python 3.11")])
def test_a_format_whose_reader_is_missing_is_named(tmp_path, monkeypatch, name, module, advice):
    """With the command that installs it, or the version of Python."""
    monkeypatch.setitem(sys.modules, module, None)
    error = error_of(read_flags, written(tmp_path, name, ""))
    assert error.code == "package_missing" and advice in str(error) and "\n" not in str(error)


def test_a_training_of_a_program_takes_the_file(tmp_path):
    """Its own arguments count, not those of the file, whose errors have their line."""
    path = written(tmp_path, "run.yaml", "num_ps: 1\ntrain_steps: 500\nbatch_size: 6\n")
    command = Training(config=path, train_steps=600).command()
    assert {"--num_ps=1", "--train_steps=600", "--batch_size=6"} <= {*command.split()}
    error = error_of(Training, config=written(tmp_path, "run.yaml", "train_steps: 0"))
    assert error.problems[0].endswith(f"({path}, line 1)")


def test_a_word_of_the_file_is_a_flag():
    """It may be copied into any list of words, and shows as it would be typed."""
    flag = fields.FileFlag("seed", "1", "run.yaml", 3, True)
    assert (flag, flag.place) == ("--seed=1", "run.yaml, line 3")


def test_a_tilde_stands_for_the_home_folder(tmp_path, monkeypatch):
    """A shell leaves it in --config=~/run.json; the place of a flag has the path as it was typed."""
    written(tmp_path, "run.json", '{"train_steps": 500}')
    monkeypatch.setenv("HOME", str(tmp_path))
    [flag] = read_flags("~/run.json")
    assert (flag, flag.place) == ("--train_steps=500", "~/run.json, line 1")
