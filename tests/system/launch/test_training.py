"""`ps_train.Training` in programs with real clusters: results, sweeps, and what is left when a program ends."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

import ps_train
from ps_train.launch import command_lines, launcher
from tests.children import DEADLINE_SECS, wait_until
from tests.system.launch.test_launcher import REPO, Launched

PROGRAM = """
    import json, sys
    import ps_train

    def trial(**flags):
        return ps_train.Training("toy", "toy", num_ps=1, num_workers=1, log_steps=5, save_summaries_steps=0, **flags)

    def show(**values):
        print(json.dumps(values) + "\\n", end="", flush=True)  # at once: the training's thread prints, too

    {body}
"""


@pytest.fixture
def run(tmp_path):
    """Runs programs, whose first argument makes the tasks forks, and ends what they leave when a test fails."""
    programs = []

    def start(body, **flags):
        lines = PROGRAM.replace("{body}", "\n    ".join(body.strip().splitlines()))
        programs.append(Launched(tmp_path, arguments=["launch", json.dumps(flags)], program=lines))
        return programs[-1]

    yield start
    for program in programs:
        program.clean_up()


def shown(program):
    """Returns the values that a program has shown, each a dict."""
    return [json.loads(line) for line in program.output.splitlines() if line.startswith("{")]


def test_a_program_launches_waits_and_reads_the_result(run):
    """First with a module; then, from another thread, with a function of the program, which uses a constant of it."""
    program = run("""
import threading
import toy
training = trial(train_dir="train", train_steps=20)
result = training.launch().wait(timeout_secs=100)
show(step=result.step, why=result.why, checkpoint=result.checkpoint, exit_codes=result.exit_codes,
     step_of_progress=training.progress.step)
DEFAULT_PARAMS, SCALE = {"fault": ""}, 2.0
def network(features, labels, mode, params):
    return toy.model_fn(SCALE * features, labels, mode, params)
again = ps_train.Training(network, toy, num_ps=1, num_workers=1, train_dir="functions", train_steps=20)
thread = threading.Thread(target=lambda: show(step=again.launch().wait(timeout_secs=100).step))
thread.start()
thread.join()
""")
    if program.wait() != 0:
        program.fail("exit code")
    program.check_no_process_is_left()
    first, second = shown(program)
    assert (first["step"], first["exit_codes"]) == (20, {"ps:0": 0, "worker:0": 0})
    assert first["why"] == "the global step reached train_steps"
    assert first["checkpoint"].endswith("model.ckpt-20")
    assert first["step_of_progress"] == 20
    assert second == {"step": 20}


def test_a_program_may_change_its_folder_after_the_launch(tmp_path, monkeypatch):
    """The relative paths, the working directory of the tasks and what is recorded are those of the launch."""
    writes_where = [sys.executable, "-c", "import os, pathlib; pathlib.Path(f'was-here-{os.getpid()}').touch()"]
    monkeypatch.setattr(command_lines, "on_this_python", lambda line: writes_where)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    has_changed = threading.Event()
    monkeypatch.setattr(launcher, "refuse_tf_config", lambda environ: has_changed.wait(DEADLINE_SECS))
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "data").mkdir(parents=True)
    second.mkdir()
    monkeypatch.chdir(first)
    training = ps_train.Training("mymodel", "mydata", num_ps=1, num_workers=1, train_dir="run", log_dir="logs",
                                 data_dir="data").launch()
    monkeypatch.chdir(second)
    has_changed.set()
    result = training.wait(DEADLINE_SECS)
    assert (result.train_dir, result.log_dir) == (f"{first}/run", f"{first}/logs")
    assert result.exit_codes == {"ps:0": 0, "worker:0": 0}
    assert len([*first.glob("was-here-*")]) == 3, "the preparation and two tasks"
    assert json.loads((first / "run/launch.json").read_text())["folder"] == str(first)
    assert [*second.iterdir()] == []


def test_the_error_of_a_task_is_an_exception(run):
    """With the code, and the lines of the user's code; a fault that the preparation finds, and one in a step."""
    program = run("""
for fault, steps in (("model_fn", 20), ("row", 20)):
    try:
        trial(train_dir=fault, params={"fault": fault}, train_steps=steps).launch().wait()
    except ps_train.UserCodeError as error:
        show(code=error.code, lines=str(error).splitlines())
""")
    if program.wait() != 0:
        program.fail("exit code")
    of_graph, of_step = shown(program)
    assert (of_graph["code"], of_step["code"]) == ("user_code_failed", "user_code_failed")
    assert of_graph["lines"][0].startswith("toy.model_fn failed: correct line ")
    assert "    features = tf.nn.rellu(features)" in of_graph["lines"]
    assert of_step["lines"][0].startswith("worker:0: toy.read failed in a step: correct line ")
    assert "ValueError: this row is damaged" in of_step["lines"]


SWEEP_SECS = 300  # for 4 clusters, two at a time


def test_a_sweep_of_clusters_has_its_results_in_one_table(run, tmp_path):
    """Two clusters at once never meet: each has its ports and its folder; nothing of them is left."""
    program = run("""
trials = [trial(train_steps=20, learning_rate=0.4 / 2**number, optimizer="sgd") for number in range(4)]
for first in range(0, 4, 2):
    pair = [training.launch() for training in trials[first:first + 2]]
    results = [training.wait(timeout_secs=200) for training in pair]
show(table=[[training.command(), training.result.step, training.result.train_dir, training.result.exit_codes]
            for training in trials])
""")
    if program.process.wait(SWEEP_SECS) != 0:
        program.fail("exit code")
    program.check_no_process_is_left()
    [table] = [values["table"] for values in shown(program)]
    assert [row[1] for row in table] == [20] * 4
    assert [row[3] for row in table] == [{"ps:0": 0, "worker:0": 0}] * 4
    folders = [pathlib.Path(row[2]) for row in table]
    assert len({*folders}) == 4
    for pair in zip(folders[::2], folders[1::2]):
        logs = "".join(path.read_text() for folder in pair for path in sorted(folder.glob("logs/*.log")))
        ports = re.findall(r"serves at localhost:(\d+)", logs)
        assert len({*ports}) == len(ports) == 4, logs


ENDLESS = {"model": "tests.plugins.tiny", "dataset": "tests.plugins.tiny", "train_steps": 10**6,
           "params": "batch_secs=0.02"}
SAID = {"prepares": r"\{\"launched\"", "starts": "serves at", "trains": r" step \d+ of", "evaluates": "evaluating"}


def start_and_wait_until(run, tmp_path, moment):
    """Starts a program that waits for a training, and returns it when that is so far."""
    is_at_end = moment == "evaluates"
    flags = {**ENDLESS, "train_steps": 20, "params": f"eval_gate={tmp_path}/never"} if is_at_end else ENDLESS
    program = run("""
training = ps_train.Training(num_ps=1, num_workers=1, log_steps=5, train_dir="train", **json.loads(sys.argv[2]))
training.launch()
show(launched=True)
try:
    training.wait()
finally:
    show(why=training.result.why, is_running=training.is_running)
""", **flags)
    log = program.train_dir / "logs" / "worker-0.log"
    program.wait_for(lambda: re.search(SAID[moment], program.output + (log.read_text() if log.exists() else "")),
                     f"the training {moment}")
    return program


@pytest.mark.parametrize("moment", SAID)
def test_ctrl_c_ends_the_cluster(run, tmp_path, moment):
    """Whatever it does; the program gets its KeyboardInterrupt when all is over."""
    program = start_and_wait_until(run, tmp_path, moment)
    program.process.send_signal(signal.SIGINT)
    program.wait()
    program.check_no_process_is_left()
    assert "KeyboardInterrupt" in program.output
    assert shown(program)[-1]["is_running"] is False
    if moment == "trains":
        assert list(program.train_dir.glob("model.ckpt-[1-9]*.index")), "the chief has not saved"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with a parent that is killed")
@pytest.mark.parametrize("moment", ["prepares", "trains"])
def test_tasks_end_with_a_program_that_is_killed(run, tmp_path, moment):
    """SIGKILL leaves the program no time."""
    program = start_and_wait_until(run, tmp_path, moment)
    program.process.kill()
    program.wait()
    program.check_no_process_is_left()


def test_a_program_that_ends_ends_its_training(tmp_path):
    """By an exception far from `wait`, here Ctrl-C: the tasks save. No process of this test is a fork."""
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent("""
        import signal, sys, time
        import ps_train

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands ignore it
        training = ps_train.Training("tests.plugins.tiny", "tests.plugins.tiny", num_ps=1, num_workers=1, log_steps=5,
                                     train_dir="train", train_steps=10**6, params={"batch_secs": 0.02}).launch()
        while training.progress is None:
            time.sleep(0.1)
        print("tensorflow" in sys.modules, flush=True)
        time.sleep(600)
    """))
    with open(tmp_path / "output", "wb") as output:
        program = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path, stdout=output, stderr=output,
                                   env={**os.environ, "PYTHONPATH": str(REPO)})
    try:
        wait_until(lambda: "False" in (tmp_path / "output").read_text() or program.poll() is not None, "it trains")
        program.send_signal(signal.SIGINT)
        program.wait(DEADLINE_SECS)
    finally:
        program.kill()
        logs = [tmp_path / "output", *sorted(tmp_path.glob("train/logs/*.log"))]
        print(*(f"--- {path}\n{path.read_text()}" for path in logs), sep="\n")
    assert list(tmp_path.glob("train/model.ckpt-[1-9]*.index")), "the chief has not saved"
    assert (tmp_path / "train/logs/ps-0.log").read_text().endswith("[stopped]\n")
