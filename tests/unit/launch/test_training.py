"""`ps_train.Training`: its flags, its command, and what is refused, without a process."""

from __future__ import annotations

import importlib
import io
import json
import pathlib
import shlex
import subprocess
import sys
import types

import pytest

import ps_train
from ps_train.config.launch import parse_launch
from ps_train.errors import ConfigError, LaunchError, UserCodeError
from ps_train.launch.display import Display, StatusLine
from ps_train.launch.process import error_of
from ps_train.launch.result import Result, events_of, make_result
from ps_train.launch.training import Training
from ps_train.runtime import reports
from ps_train.runtime.reports import Progress
from tests.errors import raises
from tests.processes import GUARD_SECS

REPO = pathlib.Path(__file__).resolve().parents[3]


def test_its_command_is_that_of_the_same_flags():
    """Through the shell and the parser of `ps_train launch`; None stands for the default."""
    training = Training("mymodel", "mydata", num_ps=1, train_dir=pathlib.Path("/a b"), sync_replicas=True, tf_log=False,
                        learning_rate=1e-3, params={"name": "$x", "depth": 2, "has_bias": False}, staleness_bound=None)
    words = shlex.split(training.command())
    argv = words[words.index("launch") + 1:]
    assert parse_launch(argv) == (training._config, training._launch_config) == parse_launch([
        "--num_ps=1", "--model=mymodel", "--dataset=mydata", "--train_dir=/a b", "--sync_replicas", "--notf_log",
        "--learning_rate=0.001", "--params=name=$x,depth=2,has_bias=false"])


def test_none_in_a_dict_is_the_default_too():
    """It was the text "None"."""
    training = Training("mymodel", "mydata", params={"vocab": None, "depth": 2})
    assert "--params=depth=2" in shlex.split(training.command())


@pytest.mark.parametrize("value", ["a,b=2", [64, 32]])
def test_an_item_with_a_comma_is_refused(value):
    """The flag would be that of other items."""
    with raises("flag_malformed") as caught:
        Training("mymodel", "mydata", params={"layers": value})
    assert f"layers: got {value!r}; allowed: a value without a comma" in str(caught.value)


@pytest.mark.parametrize(("flags", "argv", "code"), [
    ({"batch_size": 0}, ["--batch_size=0"], "flag_out_of_range"),
    ({"batch_size": "many"}, ["--batch_size=many"], "flag_out_of_range"),
    ({"num_ps": True}, ["--num_ps=true"], "flag_out_of_range"),
    ({"batchsize": 1}, ["--batchsize=1"], "flag_unknown"),
    ({"task_index": 1}, ["--task_index=1"], "flag_set_by_launch"),
    ({"staleness_bound": 2, "sync_replicas": True}, ["--staleness_bound=2", "--sync_replicas"], "flags_conflict"),
])
def test_a_wrong_flag_is_the_line_of_the_command_line(flags, argv, code):
    """As an exception, when the object is made."""
    with raises(code) as of_python:
        Training("mymodel", "mydata", **flags)
    with raises(code) as of_shell:
        parse_launch(["--model=mymodel", "--dataset=mydata", *argv])
    assert of_python.value.lines() == of_shell.value.lines()


@pytest.fixture
def plain_plugin(tmp_path, monkeypatch):
    """A module that needs no TensorFlow."""
    (tmp_path / "plain_plugin.py").write_text(
        "def model_fn(features): pass\ndef input_fn(): pass\ndef other_fn(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("plain_plugin")
    del sys.modules["plain_plugin"]


def test_a_module_and_its_function_stand_for_its_name(plain_plugin, tmp_path):
    """The tasks import it, from where this process has found it."""
    for model, dataset in ((plain_plugin, plain_plugin), (plain_plugin.model_fn, plain_plugin.input_fn)):
        training = Training(model, dataset)
        assert (training._config.model, training._config.dataset) == ("plain_plugin", "plain_plugin")
        assert str(tmp_path) in training._variables()["PYTHONPATH"].split(":")
        assert training.command().startswith("PYTHONPATH=")


def test_it_needs_no_tensorflow():
    """A notebook, or a program with many trainings, stays small."""
    code = ("import sys, ps_train; ps_train.Training('mymodel', 'mydata').command(); "
            "print([name for name in ('tensorflow', 'numpy') if name in sys.modules])")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=GUARD_SECS, check=True,
                           cwd=REPO)
    assert ended.stdout.strip() == "[]"


def test_what_has_no_training_is_refused(tmp_path, monkeypatch):
    """To wait without a launch, to ask without a folder, and to launch in a task, which would never end."""
    training = Training("mymodel", "mydata", train_dir="")
    assert (training.is_running, training.result, training.progress, training.train_dir) == (False, None, None, "")
    with raises("not_launched"):
        training.wait()
    with raises("no_training_in_folder"):
        training.status()
    monkeypatch.setattr(reports, "_launcher_file", [0])
    with raises("launch_in_task"):
        training.launch()


def test_the_result_is_that_of_the_newest_end(tmp_path):
    """An earlier training in the folder does not count; a journal that is damaged leaves the metrics out."""
    lines = [{"event": "end", "why": "stopped early", "step": 3}, {"event": "checkpoint", "step": 9},
             {"event": "end", "why": "the data ran out", "step": 10, "metrics": {"error": 0.5}}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps({"time": 1.0, **line}) + "\n" for line in lines))
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-10"\nall_model_checkpoint_paths: "x"\n')
    events, about = events_of(str(tmp_path)), {"secs": 1.0, "exit_codes": {}, "train_dir": str(tmp_path), "log_dir": ""}
    result = make_result(events[1:], None, **about)
    assert (result.why, result.step, result.metrics) == ("the data ran out", 10, {"error": 0.5})
    assert result.checkpoint == str(tmp_path / "model.ckpt-10")
    failed = make_result(events[3:], ConfigError("flag_unknown", "a\nb"), **{**about, "train_dir": f"{tmp_path}/none"})
    assert (failed.why, failed.step, failed.metrics, failed.checkpoint) == ("a", None, {}, "")


def test_a_result_is_a_line():
    """Without what it lacks."""
    result = Result("the data ran out", {"b": 0.123456, "a": 2.0}, 7, "", 61.2, {}, "", "", None)
    assert str(result) == "step 7: the data ran out; a 2; b 0.1235; 1 min 02 s"
    assert str(result._replace(step=None, metrics={}, secs=2.0)) == "the data ran out; 2 s"


TRACE = ["Traceback (most recent call last), your own code only:", '  File "/a/toy.py", line 7, in model_fn',
         "AttributeError: no attribute 'rellu'"]


@pytest.mark.parametrize(("lines", "exit_code", "kind", "codes"), [
    ([*TRACE, "ps_train: toy.model_fn failed: correct line 7 [user_code_failed]"], 1, UserCodeError,
     ["user_code_failed"]),
    (["ps_train: --a: wrong [flag_malformed]", "ps_train: --b: wrong [flag_unknown]"], 2, ConfigError,
     ["flag_malformed", "flag_unknown"]),
    (["ps_train: lost [ps_unreachable]"], 138, ps_train.ClusterLostError, ["ps_unreachable"]),
    (["ps_train: stopped [stopped]"], 143, ps_train.StoppedError, ["stopped"]),
    (["step 1", "step 2"], 137, LaunchError, ["task_failed"]),
    ([], 139, LaunchError, ["task_failed"]),
])
def test_the_error_of_a_task_has_its_code_and_its_traceback(lines, exit_code, kind, codes):
    """Its class follows from the exit code; no line is lost."""
    error = error_of(lines, exit_code, "worker:1")
    assert type(error) is kind and error.exit_code == exit_code
    assert [problem.code for problem in error.problems] == codes
    assert str(error).startswith(f"worker:1: {error.problems[0]}")
    for line in lines:
        assert line.removeprefix("ps_train: ").partition(" [")[0] in str(error)


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_shows_progress_in_one_line():
    """The rest of a longer line is overwritten; other streams show nothing."""
    display, terminal, file = Display(None, ["worker:0"], "worker:0", True, False), Terminal(), io.StringIO()
    with StatusLine(terminal) as line, StatusLine(file) as other, StatusLine(None) as none:
        for _ in range(2):
            display.write("Loading TensorFlow, mymodel and mydata; or so")
            line.show(display), other.show(display), none.show(display)
        display.write_line("worker:0", "step", Progress(10, 100, 0.5, 100.0, 800.0))
        line.show(display)
    first, second = terminal.getvalue().removeprefix("\r").removesuffix("\n").split("\r")
    assert first == "Loading TensorFlow, mymodel and mydata"
    assert second.startswith("[=>") and "loss 0.5" in second
    assert file.getvalue() == ""


def test_a_notebook_shows_progress_in_one_output(monkeypatch):
    """By an update of the display of the cell, without a dependency: IPython is there if a notebook is."""
    shown = []

    class Handle:
        def update(self, content, raw):
            shown.append(("update", content["text/plain"]))

    def show(content, raw, display_id):
        shown.append(("display", content["text/plain"]))
        return Handle()

    ipython = types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1),
                                    display=types.SimpleNamespace(display=show))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    display = Display(None, ["worker:0"], "worker:0", True, False)
    with StatusLine(io.StringIO()) as line:
        for message in ("Loading", "Loading", "Starting"):
            display.write(message)
            line.show(display)
    assert shown == [("display", "Loading"), ("update", "Starting")]
