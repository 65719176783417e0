"""The command line, as a user meets it: exit codes, messages, help."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import ps_train
from ps_train import __main__ as command_line
from ps_train import errors
from ps_train.launch.training import Training
from ps_train.runtime import installed, logs, tracebacks
from ps_train.tasks import setup
from ps_train.verbs import table, train
from tests.processes import GUARD_SECS

REPO = pathlib.Path(__file__).resolve().parents[2]
PLACED = ["--job_name=worker", "--task_index=0"]
CLUSTER = {"ps": ["localhost:5901"], "worker": ["localhost:5902"]}


def _tf_config(cluster=CLUSTER, **task):
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0, **task}})


class Tasks:
    """Replaces the modules of ps_train.tasks, and notes the calls."""

    def __init__(self):
        self.calls = []
        self.needs_gpu = None
        self.error = None

    def load(self, config, needs_gpu):
        """Replaces the import of the modules."""
        self.needs_gpu = needs_gpu
        return self, self

    def _note(self, verb, config, cluster=None, stop=None):
        self.calls.append((verb, cluster.task.name if cluster else None))
        if self.error:
            raise self.error

    def run_task(self, *arguments):
        """Would train."""
        self._note("run_task", *arguments)

    def serve(self, *arguments):
        """Would serve."""
        self._note("serve", *arguments)

    def download(self, *arguments):
        """Would download."""
        self._note("download", *arguments)


@pytest.fixture
def tasks(monkeypatch):
    """Notes the calls that would need TensorFlow."""
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(logs, "setup", lambda: None)
    stand_in = Tasks()
    monkeypatch.setattr(train, "_import_tasks", stand_in.load)
    return stand_in


@pytest.fixture
def refusal(tasks, capsys):
    """A function that runs a command line which must be refused before TensorFlow is imported: its messages."""

    def run(*argv):
        assert command_line.main(argv) == 2
        out, err = capsys.readouterr()
        assert (out, tasks.calls) == ("", [])
        lines = err.splitlines()
        assert lines and all(line.startswith("ps_train: ") for line in lines)
        return [line.partition(": ")[2] for line in lines]

    return run


# --- what runs

@pytest.mark.parametrize(("argv", "call"), [
    (PLACED, ("run_task", "worker:0")),
    (["train", *PLACED], ("run_task", "worker:0")),
    (["--job_name=ps", "--task_index=0"], ("run_task", "ps:0")),
    (["serve", "--job_name=ps", "--task_index=0"], ("serve", "ps:0")),
    (["serve", *PLACED], ("serve", "worker:0")),
    (["--download_only"], ("download", None)),
    (["--download_only", *PLACED], ("download", "worker:0")),
])
def test_a_verb_runs_its_task(tasks, argv, call):
    """The default verb is `train`; the exit code is 0."""
    assert command_line.main(argv) == 0
    assert tasks.calls == [call]


def test_tf_config_places_the_task(tasks, monkeypatch):
    """The four cluster flags may be left out, or agree."""
    monkeypatch.setenv("TF_CONFIG", _tf_config())
    assert command_line.main([]) == command_line.main(PLACED) == 0
    assert tasks.calls == [("run_task", "worker:0")] * 2


def test_launch_gets_both_configs(tasks, monkeypatch):
    """`launch` runs without TensorFlow in the launcher."""
    calls = []
    monkeypatch.setattr(Training, "run", lambda training: calls.append((training._config, training._launch_config)))
    assert command_line.main(["launch", "--num_workers=3", "--batch_size=5"]) == 0
    [(task_config, launch_config)] = calls
    assert (task_config.batch_size, launch_config.num_workers, tasks.calls) == (5, 3, [])


@pytest.mark.parametrize(("argv", "needs_gpu"), [
    (PLACED, True), ([*PLACED, "--num_gpus=0"], False), (["--job_name=ps", "--task_index=0"], False),
    (["--download_only"], False)])
def test_only_a_task_that_computes_sees_a_gpu(tasks, argv, needs_gpu):
    """A ps and a download leave the GPUs alone."""
    command_line.main(argv)
    assert tasks.needs_gpu is needs_gpu


# --- what is refused

@pytest.mark.parametrize(("argv", "code", "values"), [
    ([], "flag_missing", ["--job_name"]),
    (["trian", *PLACED], "verb_unknown", ["'trian'", "'train'", *table.NAMES]),
    (["xyz"], "verb_unknown", ["'xyz'"]),
    ([*PLACED, "serve"], "not_a_flag", ["'serve'"]),
    ([*PLACED, "--train_stpes=5"], "flag_unknown", ["--train_stpes", "--train_steps?"]),
    ([*PLACED, "--task_index=0"], "flag_given_twice", ["--task_index"]),
    (["--job_name=wroker", "--task_index=0"], "flag_out_of_range", ["'wroker'", "evaluator"]),
    (["--job_name=worker", "--task_index=2"], "flag_out_of_range", ["--task_index", "0 to 1"]),
    ([*PLACED, "--ps_hosts=http://a:1"], "address_malformed", ["--ps_hosts entry 0", "'http://a:1'"]),
    ([*PLACED, "--ps_hosts=a:1,a:1"], "address_given_twice", ["a:1"]),
    ([*PLACED, "--learning_rate=nan"], "flag_out_of_range", ["--learning_rate", "nan"]),
    ([*PLACED, "--replicas_to_aggregate=2"], "flag_without_effect", ["--replicas_to_aggregate", "--sync_replicas"]),
    (["serve", *PLACED, "--download_only"], "flag_of_another_verb", ["--download_only", "`serve`"]),
    (["launch", "--task_index=0"], "flag_set_by_launch", ["--task_index"]),
    (["launch", "--num_ps=0"], "flag_out_of_range", ["--num_ps", "0"]),
    (["--strategy=mirrored", *PLACED], "flag_unknown", ["--strategy"]),
    (["keras", "--sync_replicas"], "flag_of_another_verb", ["--sync_replicas", "`ps_train keras`"]),
])
def test_a_wrong_command_line_is_refused(refusal, argv, code, values):
    """Exit code 2 and one line, before TensorFlow is imported and thus before any socket opens."""
    [line] = refusal(*argv)
    assert line.endswith(f" [{code}]") and all(value in line for value in values)


@pytest.mark.parametrize(("text", "code"), [
    ("{", "tf_config_not_json"), (_tf_config(type="chief"), "tf_config_unknown_job"),
    (_tf_config(index=1), "tf_config_bad_index"), (_tf_config(type="ps"), "flag_contradicts_tf_config"),
])
def test_a_wrong_tf_config_is_refused(refusal, monkeypatch, text, code):
    """Also if a flag contradicts it."""
    monkeypatch.setenv("TF_CONFIG", text)
    [line] = refusal("--job_name=worker")
    assert line.endswith(f" [{code}]")


def test_all_wrong_flags_are_reported_together(refusal):
    """One line for each."""
    assert len(refusal("--batch_size=0", "--optimizer=x", "--ps_hosts=a", "--log_steps=y")) == 4


def test_an_evaluator_has_nothing_to_serve(refusal, monkeypatch):
    """`serve` is for tasks that have a server."""
    monkeypatch.setenv("TF_CONFIG", _tf_config(type="evaluator"))
    [line] = refusal("serve")
    assert line.endswith("[evaluator_without_server]")


def test_the_server_of_a_worker_has_no_health_of_its_own(refusal):
    """Its client has the same place on the machine, so the same port."""
    [line] = refusal("serve", *PLACED, "--health_port=9090")
    assert "--health_port: " in line and "worker:0" in line and line.endswith("[flag_of_another_verb]")


@pytest.mark.parametrize(("flags", "message"), [
    (["--model=mpl"], "--model: no module 'mpl' in"),
    (["--dataset=data.pipeline"], "--dataset: module 'data.pipeline'"),
    (["--dataset=digits", "--params=rate=1"],
     "--params: unknown parameter 'rate'; known to models.mlp and data.digits"),
    (["--dataset=digits", "--model=cnn", "--params=filters=x"],
     "--params: filters='x'; allowed: int, as in models.cnn's default 16"),
    (["--dataset=digits", "--params=batch_size=4"], "--params: 'batch_size' has its own flag"),
])
@pytest.mark.parametrize("job", ["ps", "worker"])
def test_wrong_plugins_are_refused_by_every_task(monkeypatch, capsys, job, flags, message):
    """Also flags that are checked with the plug-ins are refused before a server starts, by a ps as by a worker."""
    monkeypatch.chdir(REPO)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")  # which main sets for a ps
    monkeypatch.setattr(logs, "setup", lambda: None)
    monkeypatch.setattr(setup, "start", lambda *arguments: pytest.fail("a server was started"))
    assert command_line.main([f"--job_name={job}", "--task_index=0", *flags]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ps_train: {message}")


# --- what goes wrong later

@pytest.mark.parametrize(("error", "exit_code"), [
    (errors.DataError("x", "a\nb"), 1), (errors.ConfigError("x", "a\nb"), 2),
    (errors.ClusterLostError("x", "a\nb"), 138), (errors.StoppedError("x", "a\nb"), 143)])
def test_an_error_of_ps_train_has_no_traceback(tasks, capsys, error, exit_code):
    """Each line begins with the program's name; the first ends with the code."""
    tasks.error = error
    assert command_line.main(PLACED) == exit_code
    assert capsys.readouterr().err == "ps_train: a [x]\nps_train: b\n"


def test_a_fault_in_the_users_code_shows_its_traceback(tasks, capsys):
    """Any other exception comes from the user's code: exit code 1, and a traceback."""
    tasks.error = ZeroDivisionError("in your model")
    assert command_line.main(PLACED) == 1
    assert capsys.readouterr().err.startswith("Traceback")


@pytest.mark.parametrize("argv", [PLACED, ["--download_only"]], ids=["train", "download"])
@pytest.mark.parametrize("status", [(), (0,), (3,), ("no more data",)])
def test_an_exit_of_the_users_code_is_no_success(tasks, capsys, argv, status):
    """Another worker would then wait for this one, and the launcher would blame the ps."""
    tasks.error = SystemExit(*status)
    assert command_line.main(argv) == 1
    assert ": ".join(["SystemExit", *map(str, status)]) in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("words", [["--tf_log"], ["--tf_log=true"], ["--flagfile={folder}/flags"]], ids=str)
def test_tf_log_shows_the_whole_traceback_however_it_is_given(monkeypatch, capsys, tmp_path, words):
    """As its help says; without it, the lines of the user's code are shown."""
    def fail():
        raise ZeroDivisionError("in your model")

    report = tracebacks.report
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setattr(logs, "setup", lambda: None)
    monkeypatch.setattr(installed, "is_verbose", False)
    monkeypatch.setattr(installed, "check_tensorflow", fail)
    monkeypatch.setattr(tracebacks, "report", lambda error: (["short"], report(error)[1]))
    (tmp_path / "flags").write_text("--tf_log=true\n")
    for given, has_short in (([], True), ([word.format(folder=tmp_path) for word in words], False)):
        assert command_line.main([*PLACED, *given]) == 1
        assert ("short" in capsys.readouterr().err) is has_short


def test_a_machine_without_a_temporary_folder_is_one_line(tasks, capsys):
    """Also where the disk is full: in any verb, wherever it needs one."""
    tasks.error = FileNotFoundError(2, "No usable temporary directory found in ['/tmp', '/']")
    assert command_line.main(PLACED) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "'/tmp', '/'" in line and "TMPDIR" in line and line.endswith("[folder_not_writable]")


def test_ctrl_c_during_a_download_is_no_fault(tasks, capsys):
    """Without a traceback, and with the exit code that shells know."""
    tasks.error = KeyboardInterrupt()
    assert command_line.main(["--download_only"]) == 130
    assert capsys.readouterr().err == ""


# --- help and version

@pytest.mark.parametrize("argv", [["--help_all"], ["--helpfull"], ["train", "--help"], ["serve", "--help"],
                                  ["launch", "--help"], ["--job_name=wroker", "--help_all"], ["keras", "--help"],
                                  ["launch", "keras", "--help"]])
def test_help_is_readable(tasks, capsys, argv):
    """Groups, units and defaults, in 80 columns; a further, wrong flag does not matter."""
    assert command_line.main(argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    verb = "" if argv[0].startswith("-") else argv[0]
    # The help of a verb begins with the verb, that of all verbs with a sentence about ps_train.
    assert out.startswith(f"Usage:\n  ps_train {verb} " if verb else "Parameter-server training")
    assert out.count("\n  ps_train ") >= (1 if verb else len(table.NAMES))
    of_keras, of_launch = "keras" in argv, argv[0] == "launch"
    assert "\n  --batch_size             Examples in a mini-batch of one " in out
    assert ("--num_ps  " in out) is of_launch is ("--ps_hosts  " not in out)
    assert ("--strategy  " in out) is of_keras is ("--sync_replicas  " not in out)


def test_help_explains_every_verb_and_exit_code(tasks, capsys):
    """All verbs, and the exit codes of all errors."""
    command_line.main(["--help_all"])
    out = capsys.readouterr().out
    assert all(f"ps_train {verb} " in out for verb in table.NAMES)
    assert all(f"{error.exit_code} " in out for error in (
        errors.UserCodeError, errors.ConfigError, errors.ClusterLostError, errors.StoppedError))


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["-help"], ["--job_name=wroker", "--help"]])
def test_the_general_help_fits_a_screen(tasks, capsys, argv):
    """Each verb and the common flags have a line, and the last lines say where the rest is."""
    assert command_line.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= {
        *table.NAMES, "--train_dir", "--ps_hosts", "--model", "--train_steps"}
    assert not any(line.endswith("...") for line in lines)
    assert any("--help_all" in line for line in lines) and lines[-1].startswith("138 ")


@pytest.mark.parametrize("argv", [["--version"], ["serve", "--version"]])
def test_version(tasks, capsys, argv):
    """The version alone."""
    assert command_line.main(argv) == 0
    assert capsys.readouterr().out == f"{ps_train.__version__}\n"


# --- real processes

def _run(*argv, cwd=REPO, search_path=""):
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(search_path), str(REPO)]), "TF_CONFIG": ""}
    return subprocess.run([sys.executable, "-m", "ps_train", *argv], cwd=cwd, env=environ, capture_output=True,
                          text=True, timeout=GUARD_SECS, check=False)


def test_a_wrong_flag_ends_the_process_at_once(tmp_path):
    """Exit code and message are those of `main`, without waiting for TensorFlow."""
    (tmp_path / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported')")
    ended = _run("--job_name=worker", "--task_index=-1", search_path=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.endswith("[flag_out_of_range]\n") and ended.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["--help"], ["new", "mine"]])
def test_the_output_may_be_cut_off(tmp_path, words):
    """`ps_train --help | head` prints no traceback."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as cut_off:
        ended = subprocess.run([sys.executable, "-m", "ps_train", *words], cwd=tmp_path, stdout=cut_off,
                               stderr=subprocess.PIPE, text=True, timeout=GUARD_SECS, check=False,
                               env={**os.environ, "PYTHONPATH": str(REPO)})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_closed_output_does_not_change_the_exit_code():
    """A daemon's process may have no stdout and stderr."""
    command = f"exec {sys.executable} -m ps_train --bogus >&- 2>&- <&-"
    assert subprocess.run(["sh", "-c", command], cwd=REPO, timeout=GUARD_SECS, check=False).returncode == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_an_exit_function_that_hangs_takes_no_written_line_with_it(tmp_path):
    """It is cut off with a line; what the user has left in open files is written after all."""
    program = (
        "import atexit, sys, threading\n"
        "from ps_train import __main__ as command_line\n"
        "command_line._CLEAN_UP_SECS = 0.1\n"
        "log = open('metrics.csv', 'w')\n"
        "log.write('1,2\\n')\n"
        "atexit.register(threading.Event().wait)\n"
        "sys.argv = ['ps_train', '--version']\n"
        "command_line.console()\n")
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)},
                           text=True, capture_output=True, timeout=GUARD_SECS, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{ps_train.__version__}\n")
    assert ended.stderr.startswith("ps_train: the functions of `atexit`") and ended.stderr.count("\n") == 1
    assert (tmp_path / "metrics.csv").read_text() == "1,2\n"


def test_a_full_disk_does_not_change_the_exit_code():
    """No traceback because the last line could not be written."""
    with open("/dev/full", "wb") as full:
        ended = subprocess.run([sys.executable, "-m", "ps_train", "--version"], cwd=REPO, stdout=full,
                               stderr=subprocess.PIPE, text=True, timeout=GUARD_SECS, check=False,
                               env={**os.environ, "PYTHONUNBUFFERED": ""})
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_plugin_that_cannot_be_imported_shows_its_traceback(tmp_path):
    """Exit code 1, the user's own line in the traceback, and none of TensorFlow's noise."""
    (tmp_path / "broken_plugin.py").write_text("import os\nraise RuntimeError('mine')  # this very line\n")
    ended = _run("--model=broken_plugin", *PLACED, cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    path = tmp_path / "broken_plugin.py"
    assert ended.stderr == (
        "Traceback (most recent call last), your own code only:\n"
        f"  File \"{path}\", line 2, in <module>\n    raise RuntimeError('mine')  # this very line\n"
        "RuntimeError: mine\n"
        f"ps_train: module broken_plugin failed: correct line 2 of {path}, then run the same command again "
        "[user_code_failed]\n")


def test_an_unknown_model_in_an_empty_folder(tmp_path):
    """One line, exit code 2."""
    ended = _run("--model=nope", "--download_only", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("ps_train: --model: no module 'nope' in ")
    assert ended.stderr.count("\n") == 1


def test_a_wrong_init_checkpoint_is_refused_in_the_preparation(tmp_path):
    """So a launch, which begins with it, starts no task."""
    ended = _run(*PLACED, "--download_only", "--dataset=digits", f"--train_dir={tmp_path / 'train'}",
                 f"--init_checkpoint={tmp_path / 'none'}", cwd=tmp_path)
    assert ended.returncode == 2
    assert str(tmp_path / "none") in ended.stderr and ended.stderr.endswith(" [checkpoint_unreadable]\n")
    assert ended.stderr.count("\n") == 1


def test_ctrl_c_while_the_data_is_fetched(tmp_path):
    """The process ends by itself, without a traceback."""
    (tmp_path / "slow_plugin.py").write_text(
        "import time\n"
        "def model_fn(features, labels, mode, params): pass\n"
        "def input_fn(mode, params, shard): pass\n"
        "def prepare(params):\n"
        "    print('fetching', flush=True)\n"
        "    time.sleep(3600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ps_train", "--download_only", "--model=slow_plugin", "--dataset=slow_plugin"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's `&` ignores it
    try:
        assert process.stdout.readline() == "fetching\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=GUARD_SECS)
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "")
