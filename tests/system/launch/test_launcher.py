"""launch: the flags of each task, and real clusters from start to end; each process has a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import uuid

import numpy as np
import pytest

from ps_train import __main__ as command_line
from ps_train.config import groups
from ps_train.config.launch import LaunchConfig, parse_launch
from ps_train.errors import ConfigError, LaunchError
from ps_train.launch import command_lines, display, launcher, preparation
from ps_train.runtime import logs
from ps_train.runtime.reports import Failure
from tests import fork_server
from tests.children import is_free
from tests.errors import raises

ENDLESS = ["--train_steps=1000000", "--params=batch_secs=0.02"]  # slow, which leaves the cores free
REPO = pathlib.Path(__file__).resolve().parents[3]
DEADLINE_SECS = 120
MARK = "PS_TRAIN_TEST_RUN"  # in the environment of every process that is no fork, to find what is left of a launch
PLUGIN = """
    import time
    import numpy as np
    import tensorflow.compat.v1 as tf
    from ps_train import ModelSpec, from_arrays

    DEFAULT_PARAMS = {"broken_shard": -1, "fault": "", "batch_secs": 0.0}

    def read(row):
        raise ValueError("this row is damaged")

    def model_fn(features, labels, mode, params):
        if params["fault"] == "model_fn":
            features = tf.nn.rellu(features)
        weight = tf.get_variable("weight", [], tf.float32, tf.zeros_initializer())
        return ModelSpec(loss=tf.reduce_mean(tf.square(weight * features - labels)), predictions=weight * features)

    def input_fn(mode, params, shard):
        if shard[0] == params["broken_shard"]:
            raise ValueError("this shard is broken")
        features = np.linspace(0, 1, 64, dtype=np.float32)
        data = from_arrays([features, 2 * features], params["batch_size"], mode == "train", mode == "train")
        if params["fault"] == "row":
            data = data.map(lambda x, y: (x + tf.ensure_shape(tf.numpy_function(read, [x], tf.float32), []), y))
        if mode == "train" and params["batch_secs"]:
            def wait(x):
                time.sleep(params["batch_secs"])
                return x
            data = data.map(lambda x, y: (tf.ensure_shape(tf.numpy_function(wait, [x], tf.float32), [None]), y))
        return data
"""


class Launched:
    """A launcher in a process, in a folder with a plug-in `toy`."""

    def __init__(self, folder, *flags, arguments=None, is_exec=False, program=""):
        """Starts it, with these flags or with all other arguments; with `is_exec` all processes are new Pythons.

        A program, the text of a script that launches, gets the arguments in the place of `python -m ps_train`.
        """
        self.train_dir = folder / "train"
        self._run = uuid.uuid4().hex
        self._output = folder / f"output-{self._run}.txt"
        self._forks = folder / f"forks-{self._run}"
        self._forks.mkdir()
        (folder / "toy.py").write_text(textwrap.dedent(PLUGIN))
        environ = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "TMUX")}
        environ.update({MARK: self._run, fork_server.FORKS_VARIABLE: str(self._forks), "PYTHONPATH": str(REPO),
                        "TMPDIR": str(folder)})
        arguments = arguments or ["launch", "--model=toy", "--dataset=toy", "--num_ps=1", "--log_steps=10",
                                  f"--train_dir={self.train_dir}", *flags]
        with open(self._output, "wb") as output:
            if is_exec:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "ps_train", *arguments], cwd=folder, env=environ, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=output)
            else:
                script = folder / "program.py"
                script.write_text(textwrap.dedent(program))
                self.process = fork_server.of_this_process().start(arguments, folder, environ, output.fileno(),
                                                                   script=str(script) if program else "")

    @property
    def output(self):
        return self._output.read_text()

    def wait(self):
        """Returns the exit code."""
        try:
            return self.process.wait(DEADLINE_SECS)
        except subprocess.TimeoutExpired:
            self.fail(f"the launcher has not ended within {DEADLINE_SECS} s")

    def wait_for(self, condition, what):
        deadline_secs = time.monotonic() + DEADLINE_SECS
        while not condition():
            if time.monotonic() > deadline_secs:
                self.fail(f"within {DEADLINE_SECS} s: {what}")
            time.sleep(0.05)

    def wait_for_training(self):
        self.wait_for(lambda: re.search(r"worker:0 \| .* step \d+ of", self.output), "the chief's first progress line")

    def check_nothing_is_left(self):
        """Fails if processes of this launch live on, or its ports stay taken."""
        self.check_no_process_is_left()
        assert self.ports()
        # A process that was killed has lost its environment, by which `processes` finds it, before its sockets.
        self.wait_for(lambda: all(map(is_free, self.ports())), "every port is free")

    def check_no_process_is_left(self):
        """Fails if processes of this launch live on."""
        self.wait_for(lambda: not self.processes(), "every process has ended")

    def processes(self):
        """Returns the ids of the live processes of this launch, each with its command line."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self._run}".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = _command_of(folder.name)
            except OSError:  # it has just ended, or is another user's
                continue
        for path in self._forks.iterdir():
            fork = json.loads(path.read_text() or "{}")
            if fork and fork_server.start_of(int(path.name)) == fork["start"]:
                found[int(path.name)] = fork["arguments"]
        return found

    def kill_task(self, job, index):
        """Ends a task at once, as an out-of-memory killer would."""
        flags = {f"--job_name={job}", f"--task_index={index}"}
        (pid,) = [pid for pid, command in self.processes().items() if flags <= {*command}]
        os.kill(pid, signal.SIGKILL)

    def ports(self):
        return sorted({int(port) for port in re.findall(r"localhost:(\d+)", self.output)})

    def fail(self, why):
        logs = "\n".join(f"--- {path}\n{path.read_text()}" for path in sorted(self.train_dir.glob("logs/*.log")))
        pytest.fail(f"{why}\n--- launcher\n{self.output}\n{logs}")

    def clean_up(self):
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(pid, signal.SIGKILL)
        self.process.wait(DEADLINE_SECS)


def _command_of(pid):
    words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return words if not words[0].endswith("sh") else []  # the shell around a task in a pane is not the task


@pytest.fixture
def start(tmp_path):
    """Starts launchers, and ends what they leave when the test fails."""
    launched = []

    def start_one(*flags, **options):
        launched.append(Launched(tmp_path, *flags, **options))
        return launched[-1]

    yield start_one
    for one in launched:
        one.clean_up()


def test_a_cluster_trains_and_leaves_nothing(start):
    """1 ps + 2 workers end with 0; the report, the log files and the exit codes are there, no process, no port."""
    run = start("--train_steps=200")
    if run.wait() != 0:
        run.fail("exit code")
    run.check_nothing_is_left()
    assert sorted(path.name for path in (run.train_dir / "logs").iterdir()) == [
        "ps-0.log", "worker-0.log", "worker-1.log"]
    assert re.search(r"worker:0 \| After 20[01] training steps", run.output)
    assert re.search(r"Exit codes: ps:0 0 \(.* s\), worker:0 0 \(.* s\), worker:1 0 \(.* s\)", run.output)
    assert re.search(rf"^TensorBoard: .* -m tensorboard.main --logdir={re.escape(str(run.train_dir))}",
                     run.output, re.MULTILINE)
    # Both workers may take the last step at once: then the global step passes the limit, and stands alone.
    assert re.search(r"worker:0 \| \S+ step (200 of 200|201), finishing and saving\n(.*\n)*"
                     r"worker:0 \| \S+ step (200 of 200|201), evaluating\n", run.output), run.output
    assert "\x1b" not in run.output
    assert not re.search(r"worker:1 \|.* step \d+ of", run.output), "only the chief's progress is shown"
    log = (run.train_dir / "logs" / "worker-1.log").read_text()
    assert re.search(r"this worker (did \d+ steps|took no step)|nothing to train", log), "it may begin after the end"


def test_a_log_of_json_has_an_object_on_each_line(start):
    """Of every task and the launcher; the chief's progress has the loss as a number, its evaluation the metrics."""
    run = start("--log_format=json", "--train_steps=100")
    if run.wait() != 0:
        run.fail("exit code")
    lines = [json.loads(line) for line in run.output.splitlines()]
    assert {line["task"] for line in lines} == {"launch", "ps:0", "worker:0", "worker:1"}
    assert all({"time", "level", "message"} <= line.keys() for line in lines)
    progress = [line for line in lines if line["task"] == "worker:0" and "steps_per_sec" in line]
    assert all(0 < line["step"] <= 101 and isinstance(line["loss"], float) for line in progress)
    assert [line["step"] for line in lines if line["message"].startswith("After ")] in ([100], [101])
    ending = next(line for line in lines if line["message"].startswith("training ended at step"))
    assert ending["step"] in (100, 101)


@pytest.mark.parametrize(("flags", "task", "code", "cause"), [
    (["--params=fault=model_fn"], None, "user_code_failed", "rellu"),  # in the preparation
    (["--params=broken_shard=1,batch_secs=0.02", "--train_steps=1000000"], "worker:1", "user_code_failed",
     "this shard is broken"),
])
def test_a_fault_is_a_line_of_json_with_code_and_traceback(start, flags, task, code, cause):
    """One line of the task that failed; no line of the output is anything but JSON."""
    run = start("--log_format=json", *flags)
    if run.wait() != 1:
        run.fail("exit code")
    lines = [json.loads(line) for line in run.output.splitlines()]
    errors = [line for line in lines if line["level"] == "error" and line["task"] != "launch"]
    assert [(error["code"], error["exit_code"]) for error in errors] == [(code, 1)], run.output
    assert cause in errors[0]["traceback"] and task in (None, errors[0]["task"])


def test_a_failing_worker_ends_the_others(start):
    """Worker 1 raises: exit code 1, its name and last lines are shown, and no task stays."""
    run = start("--params=broken_shard=1,batch_secs=0.02", "--train_steps=1000000")
    if run.wait() != 1:
        run.fail("exit code")
    run.check_nothing_is_left()
    assert "worker:1 failed with exit code 1; ending the other tasks" in run.output
    assert "worker:1 | ValueError: this shard is broken" in run.output
    assert run.output.count("this shard is broken") == 2, "the line of code and the error, once"
    assert re.search(r"^(ps:0, )?worker:0: ended because worker:1 failed$", run.output, re.MULTILINE)
    assert run.output.endswith("ps_train: worker:1 failed [task_failed]\n")


def test_a_fault_in_the_model_is_found_once_before_anything_starts(start):
    """The user's lines and one sentence; no task, no folder."""
    run = start("--params=fault=model_fn")
    if run.wait() != 1:
        run.fail("exit code")
    path = run.train_dir.parent / "toy.py"
    line = path.read_text().splitlines().index("        features = tf.nn.rellu(features)") + 1
    assert run.output.splitlines() == [
        "Loading TensorFlow, toy and toy",
        "Traceback (most recent call last), your own code only:", f'  File "{path}", line {line}, in model_fn',
        "    features = tf.nn.rellu(features)",
        "AttributeError: module 'tensorflow._api.v2.compat.v1.nn' has no attribute 'rellu'",
        f"ps_train: toy.model_fn failed: correct line {line} of {path}, then run the same command again "
        "[user_code_failed]"]
    assert not run.train_dir.exists()


def test_a_fault_that_all_workers_have_is_told_once(start):
    """One traceback of the user's own frames, though both raise; the others are one line."""
    run = start("--params=fault=row")
    if run.wait() != 1:
        run.fail("exit code")
    run.check_nothing_is_left()
    assert run.output.count("Traceback") == 1, run.output
    assert run.output.count("ValueError: this row is damaged") == 1, run.output
    assert re.search(r"worker:\d \| ps_train: toy.read failed in a step: correct line \d+ of \S+toy.py", run.output)
    of_tasks = [line for line in run.output.splitlines() if re.match(r"worker:|ps:", line)]
    assert len([line for line in of_tasks if "| " not in line]) in (2, 3), run.output


def test_a_worker_that_was_killed_is_started_again_until_it_is_killed_too_often(start):
    """A line announces the restart; one log has both lives; the next end counts as it does without --max_restarts."""
    run = start(*ENDLESS, "--max_restarts=1")
    run.wait_for_training()
    run.wait_for(lambda: " step " in log_of(run, "worker-1"), "worker 1 trains")
    run.kill_task("worker", 1)
    run.wait_for(lambda: has_trained_twice(run), "worker 1 trains again")
    run.kill_task("worker", 1)
    if run.wait() != 137:
        run.fail("exit code")
    run.check_nothing_is_left()
    assert run.output.count("worker:1 ended with 137; starting it again at once (restart 1 of 1)\n") == 1
    assert "worker:1 failed with exit code 137 after 1 restart; ending the other tasks" in run.output


def has_trained_twice(run):
    return re.search(r" serves at .* serves at .* step \d+ of", log_of(run, "worker-1"), re.DOTALL)


def log_of(run, name):
    path = run.train_dir / "logs" / f"{name}.log"
    return path.read_text() if path.exists() else ""


def test_after_ctrl_c_the_printed_command_continues(start):
    """A launch without --train_dir makes a new folder each time; what it prints names the one that it made.

    Ctrl-C ends all with 130, the chief after it has saved.
    """
    flags = ["--model=toy", "--dataset=toy", "--num_ps=1", "--num_workers=1", "--log_steps=10", *ENDLESS]
    run = start(arguments=["launch", *flags])
    run.wait_for_training()
    run.process.send_signal(signal.SIGINT)
    if run.wait() != 130:
        run.fail("exit code")
    run.check_nothing_is_left()
    command = shlex.split(re.search(r"To continue this training, in .*:\n  (.*)\n", run.output)[1])
    folder = re.search(r"Checkpoints: (\S+)", run.output)[1]
    assert command[1:4] == ["-m", "ps_train", "launch"]
    assert set(command[4:]) == {*flags, f"--train_dir={folder}"}
    assert "the same command" not in run.output
    again = start(arguments=command[3:])
    again.wait_for(lambda: f"continuing from {folder}/model.ckpt-" in again.output, "training continues there")
    again.process.send_signal(signal.SIGINT)
    if again.wait() != 130:
        again.fail("exit code")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with a parent that is killed")
def test_tasks_end_when_the_launcher_is_killed(start):
    """SIGKILL leaves the launcher no time; the tasks end nevertheless."""
    run = start(*ENDLESS, "--num_workers=1", is_exec=True)
    run.wait_for_training()
    run.process.kill()
    assert run.wait() == -signal.SIGKILL
    run.check_nothing_is_left()


def test_a_mistake_is_told_once_before_anything_starts(start):
    """Exit code 2, one line, no folder and no task."""
    run = start("--params=no_such=1")
    if run.wait() != 2:
        run.fail("exit code")
    assert run.output == ("Loading TensorFlow, toy and toy\n"
                          "ps_train: --params: unknown parameter 'no_such'; known to toy and toy: batch_secs, "
                          "broken_shard, fault [parameter_unknown]\n")
    assert not run.train_dir.exists()


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_shows_each_task_in_a_pane_that_stays(start):
    """Through a restart, and after the end; the launcher has printed how to attach and how to end tmux.

    SIGTERM ends all with 143. A checkpoint is left then, so the ps were there until the chief had saved.
    """
    run = start(*ENDLESS, "--max_restarts=2", "--tmux")
    run.wait_for(lambda: " step " in log_of(run, "worker-0") and " step " in log_of(run, "worker-1"), "both train")
    assert not list(run.train_dir.glob("model.ckpt-[1-9]*"))
    server = re.search(r"`tmux -L (\S+) attach` shows them, `tmux -L \1 kill-server` ends tmux", run.output)[1]
    try:
        run.kill_task("worker", 1)
        run.wait_for(lambda: has_trained_twice(run), "worker 1 trains again")
        run.process.send_signal(signal.SIGTERM)
        if run.wait() != 143:
            run.fail("exit code")
        titles = tmux(server, "list-panes", "-t", "tasks", "-F", "#{pane_title}")
        assert titles.split() == ["ps:0", "worker:0", "worker:1"]
        run.wait_for(lambda: "ps_train: stopped at step" in tmux(server, "capture-pane", "-pJ", "-t", "tasks.1"),
                     "the pane has the last line of the chief")
    finally:
        tmux(server, "kill-server")
    run.check_nothing_is_left()
    assert list(run.train_dir.glob("model.ckpt-[1-9]*.index")), "the chief has not saved"
    assert "worker:1 ended with 137; starting it again at once (restart 1 of 2)" in run.output
    assert re.search(r"worker:0 143 \(\d+\.\d s\), worker:1 143 \(\d+\.\d s, 1 restart\)", run.output)
    assert "ps_train: stopped at step" in log_of(run, "worker-0")


def test_one_launch_at_a_time_writes_its_logs_into_a_folder(tmp_path):
    """Or each would take the lines of both for its own. Afterwards the folder is free, although a child has it open."""
    quiet = display.Display(None, [], "worker:0", False, False)
    with launcher.started([], [], str(tmp_path), quiet):
        child = os.fork()
        if not child:
            signal.pause()
        with raises("log_dir_in_use"), launcher.started([], [], str(tmp_path), quiet):
            pass
    try:
        with launcher.started([], [], str(tmp_path), quiet):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def tmux(server, *arguments):
    return subprocess.run(["tmux", "-L", server, *arguments], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=DEADLINE_SECS).stdout


def prepared(monkeypatch, argv, *results):
    """Runs the preparation with canned results; returns the Config, what was said, and the datasets tried."""
    tried, said = [], []
    answers = iter(results)

    def run(config, tasks, shown, signals, command):
        tried.append(config.dataset)
        return *next(answers), ConfigError("", "")

    monkeypatch.setattr(preparation, "_run", run)
    shown = display.Display(sys.stdout, [], "worker:0", False, False)
    monkeypatch.setattr(shown, "write", said.append)
    config, launch_config = parse_launch(argv)
    tasks = command_lines.task_list(launch_config)
    return preparation.prepare(config, tasks, shown, [], lambda name, line: None), said, tried


WHY = "https://x/train.gz: cannot be downloaded (no answer within 10 s)"
NO_MNIST = (1, Failure([f"{WHY}: put it there yourself, or use --dataset=data.digits, which needs no file"], WHY))


def test_without_mnist_the_embedded_digits_are_used_and_one_line_says_so(monkeypatch):
    """The reason is there, the advice to do what is done anyway is not."""
    config, said, tried = prepared(monkeypatch, [], NO_MNIST, (0, Failure([])))
    assert tried == ["data.mnist", "data.digits"]
    assert command_lines.task_flags(config) == ["--dataset=data.digits"]
    assert said == ["Loading TensorFlow, models.mlp and data.mnist",
                    "MNIST is not used (data_dir is /tmp/mnist-data): https://x/train.gz: cannot be downloaded (no "
                    "answer within 10 s); training on the synthetic digits instead (--dataset=data.digits)"]


@pytest.mark.parametrize(("argv", "result"), [
    (["--dataset=data.mnist"], NO_MNIST),  # requested
    (["--data_dir=/typo"], NO_MNIST),  # so are the digits that are there
    (["--download_only"], NO_MNIST),  # nothing would be downloaded
    ([], (1, Failure(["toy.model_fn failed: correct line 3 of toy.py, or use --dataset=data.digits"]))),
    ([], (2, Failure(["--params: wrong"]))),
])
def test_any_other_failure_of_the_preparation_ends_the_launch(monkeypatch, argv, result):
    """With its exit code and its lines."""
    with pytest.raises(LaunchError) as caught:
        prepared(monkeypatch, argv, result)
    assert caught.value.exit_code == result[0]
    assert caught.value.lines() == result[1].message


@pytest.mark.parametrize(("code", "words"), [(137, "exit code 137 (SIGKILL)"), (139, "(SIGSEGV)"), (3, "exit code 3;")])
def test_a_preparation_that_ends_without_a_word_is_named(monkeypatch, code, words):
    """As the kernel ends one that needs too much memory."""
    with raises("preparation_failed", kind=LaunchError) as caught:
        prepared(monkeypatch, [], (code, Failure([])))
    assert words in str(caught.value) and caught.value.exit_code == code


def test_a_failure_that_is_shown_already_leaves_no_empty_line_of_json(capsys):
    """`_print_failure` prints what is left to say: nothing."""
    logs.setup_json()
    try:
        command_line._print_failure([], Failure([]), LaunchError("", "", 2))
    finally:
        logs.setup()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("verb", [[], ["keras"]], ids=["graph", "keras"])
def test_a_data_dir_that_was_given_and_is_wrong_ends_the_launch(start, tmp_path, verb):
    """One line that names it, before TensorFlow is imported, and no training on other data."""
    path = tmp_path / "typo" / "mnist.npz"
    run = start(arguments=["launch", *verb, f"--data_dir={path}"])
    assert run.wait() == 2, run.output
    assert f"'{path}'" in run.output and run.output.endswith("[data_dir_missing]\n")
    assert not path.parent.exists()


def test_the_npz_file_of_keras_is_a_data_dir(start, tmp_path):
    """The digits in it are trained and evaluated on; graph training reads them by the same module."""
    images, labels = np.zeros([200, 28, 28], np.uint8), np.arange(200, dtype=np.uint8) % 10
    np.savez(tmp_path / "digits.npz", x_train=images, y_train=labels, x_test=images[:37], y_test=labels[:37])
    run = start(arguments=["launch", "keras", f"--data_dir={tmp_path}/digits.npz", f"--train_dir={tmp_path}/train",
                           "--train_steps=20"])
    assert run.wait() == 0, run.output
    assert "training steps, on 37 held-out examples" in run.output


@pytest.mark.parametrize("empty", [[], ["--train_dir="]])
def test_each_launch_has_a_new_train_dir(monkeypatch, tmp_path, empty):
    """Never a surprise continuation, not even in the same second; the tasks get the folder as a flag."""
    monkeypatch.setattr(groups.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(launcher.time, "strftime", lambda form: "20301231-235959")
    config, launch_config = parse_launch(["--model=models.cnn", *empty])
    folders = [launcher.make_folders(config, launch_config) for _ in range(2)]
    first, second = str(tmp_path / "ps_train/cnn-20301231-235959"), str(tmp_path / "ps_train/cnn-20301231-235959-2")
    assert [made.train_dir for made, _ in folders] == [first, second]
    assert [log_dir for _, log_dir in folders] == [f"{first}/logs", f"{second}/logs"]
    assert command_lines.task_flags(folders[1][0]) == ["--model=models.cnn", f"--train_dir={second}"]


def test_a_train_dir_that_was_given_is_used_as_it_is(tmp_path):
    """A second run continues there."""
    config, _ = parse_launch([f"--train_dir={tmp_path}"])
    made, log_dir = launcher.make_folders(config, LaunchConfig(log_dir=str(tmp_path / "my logs")))
    assert made == config
    assert log_dir == str(tmp_path / "my logs")


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path):
    """It is named, with the flags that change it."""
    (tmp_path / "file").touch()
    config, launch_config = parse_launch([f"--train_dir={tmp_path}/file"])
    with raises("folder_not_writable", kind=ConfigError):
        launcher.make_folders(config, launch_config)


def test_tf_config_is_refused():
    """It would give every task the same place."""
    with raises("tf_config_set", kind=ConfigError):
        launcher.refuse_tf_config({"TF_CONFIG": "{}"})
    launcher.refuse_tf_config({"TF_CONFIG": " "})
