"""`ps_train status`, `save`, `stop` and `resume` on real clusters: also while a worker is dead or a ps is frozen."""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import shutil
import subprocess

import pytest

from ps_train import __main__ as command_line
from ps_train.cluster.spec import Task
from ps_train.parts.control.requests import ControlBoard
from ps_train.runtime import logs
from ps_train.storage.journal import read_journal
from tests.children import wait_until
from tests.processes import TaskCluster

# Slow, to leave a core to the clients.
ENDLESS = ["--dataset=tests.plugins.slow", "--train_steps=1000000", "--save_model_secs=0", "--save_summaries_steps=0"]


@pytest.fixture
def ask(start_process, monkeypatch):
    """A function that runs a verb on a train_dir to its end, and returns its exit code and output.

    A status is looked at again and again, so in this process; a `stop` to a frozen ps would go on here.
    """
    monkeypatch.setattr(logs, "setup", lambda: None)
    count = iter(range(1000))

    def run(verb, *flags):
        if verb == "status":
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                return command_line.main([verb, *flags]), output.getvalue()
        name = f"{verb}-{next(count)}"
        start_process.start(name, [verb, *flags])
        return start_process.exit_code(name), start_process.log(name)

    return run


def status(ask, folder):
    """Returns the output of `status --json`."""
    code, text = ask("status", f"--train_dir={folder}", "--json")
    current = json.loads(text.splitlines()[0])
    assert code == {"unreachable": 138, "stopped": 143}.get(current["state"], 0), text
    return current


def wait_for_status(ask, folder, answers, workers):
    """Returns the first status in which these ps answer, and the workers 0 and 1 are in these states.

    A ps that is busy may not answer one of the questions, and a worker's heartbeat may be late.
    """
    seen = []

    def is_so():
        seen.append(status(ask, folder))
        return [ps["answers"] for ps in seen[-1]["ps"]] == answers and [
            (worker["name"], worker["state"]) for worker in seen[-1]["workers"]] == [
                (f"worker:{index}", state) for index, state in enumerate(workers)]

    wait_until(is_so, f"a status with the ps {answers} and the workers {workers}")
    return seen[-1]


def test_a_cluster_is_watched_saved_and_stopped(start_process, ask, tmp_path):
    """Two ps, two workers and an evaluator: also with a frozen ps, a dead worker, and when all is over."""
    folder = tmp_path / "train"
    cluster = TaskCluster(2, 2)
    cluster.start(start_process, [*ENDLESS, f"--train_dir={folder}"])
    start_process.start("evaluator", [*cluster.flags("worker", 0)[:2], "--job_name=evaluator", *ENDLESS,
                                      f"--train_dir={folder}"])
    wait_until(lambda: (folder / "cluster.json").exists(), "the chief's record")
    wait_until(lambda: (status(ask, folder)["step"] or 0) > 0, "steps")

    current = wait_for_status(ask, folder, [True, True], ["alive", "alive"])
    assert (current["state"], current["train_steps"], current["model"]) == ("running", 1000000, "models.mlp")
    assert all(worker["staleness"] >= 0 for worker in current["workers"])

    code, text = ask("save", f"--train_dir={folder}")
    assert code == 0
    path = pathlib.Path(text.splitlines()[-1].removeprefix("saved ") + ".index")
    assert path.exists() and path.parent == folder

    start_process.pause("ps-1")
    wait_until(lambda: [ps["answers"] for ps in status(ask, folder)["ps"]] == [True, False], "ps 1 alone is frozen")
    start_process.resume("ps-1")
    start_process.pause("ps-0")
    check_frozen(ask, folder, cluster, checkpoint=str(path.with_suffix("")))
    start_process.resume("ps-0")

    start_process.kill("worker-1")
    wait_for_status(ask, folder, [True, True], ["alive", "silent"])
    code, text = ask("stop", f"--train_dir={folder}")
    assert code == 0 and "all parameter servers have ended" in text
    ends = start_process.wait()
    assert {ends[name] for name in ("ps-0", "ps-1", "worker-0", "evaluator")} == {143}
    assert "(`ps_train stop`)" in start_process.log("worker-0")
    check_stopped(ask, folder)
    check_report(ask, folder)


def check_stopped(ask, folder):
    """Checks what is said of a training that was stopped."""
    current = status(ask, folder)
    assert current["state"] == "stopped" and not current["ps"][0]["answers"]
    assert current["why"].startswith("StoppedError: ") and current["step"] > 0
    for verb in ("save", "stop"):
        code, text = ask(verb, f"--train_dir={folder}")
        assert code == 0 and f"the training in {folder} does not run: stopped at step " in text
    code, text = ask("resume", f"--train_dir={folder}")
    assert code == 0 and "--job_name=worker --task_index=0" in text.replace("'", "")


def check_frozen(ask, folder, cluster, checkpoint):
    """While ps 0 is frozen, status reports it, and `stop` sends no request to any ps."""
    current = status(ask, folder)
    assert (current["state"], current["checkpoint"]) == ("unreachable", checkpoint)
    assert "ps:0" in current["ps"][0]["problem"]
    code, text = ask("stop", f"--train_dir={folder}")
    assert code == 138 and text.endswith(" [timed_out]\n")
    with contextlib.closing(ControlBoard(Task("ps", 1, cluster.ps[1]))) as board:
        assert not board.is_stop_requested()


def check_report(ask, folder):
    """The journal has the changes of workers and the end; a browser shows the page."""
    events = read_journal(str(folder))
    changes = {(event["name"], event["what"]) for event in events if event["event"] == "worker"}
    assert changes >= {("worker:0", "joined"), ("worker:1", "joined"), ("worker:1", "silent")}
    assert events[-1]["why"].startswith("StoppedError: ")
    code, text = ask("report", str(folder))
    assert code == 0 and text == f"wrote {folder}/report.html\n"
    if browser := next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None):
        shown = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", f"file://{folder}/report.html"],
            capture_output=True, text=True, timeout=120, check=True)
        assert "sends no heartbeat" in shown.stdout and "StoppedError" in shown.stdout
        assert shown.stdout.count("<img ") >= 4


def test_a_stopped_launch_restarts_nothing(start_process, ask, tmp_path):
    """Its exit code is 143 and nothing counts as failed; `resume` prints its command."""
    folder = tmp_path / "train"
    start_process.start("launch", ["launch", "--num_ps=1", "--num_workers=1", "--max_restarts=3", *ENDLESS,
                                   f"--train_dir={folder}"])
    wait_until(lambda: (folder / "cluster.json").exists(), "the chief's record")
    wait_until(lambda: (status(ask, folder)["step"] or 0) > 0, "steps")
    assert ask("stop", f"--train_dir={folder}")[0] == 0
    assert start_process.exit_code("launch") == 143
    log = start_process.log("launch")
    assert "`ps_train stop`" in log
    assert "starting it again" not in log and "failed" not in log
    code, text = ask("resume", str(folder))
    assert "ps_train launch --num_ps=1" in text and "--max_restarts=3" in text


@pytest.mark.parametrize(("flags", "code"), [
    ([], "flag_missing"), (["--train_dir=/nowhere"], "no_training_in_folder"), (["--train_dri=/x"], "flag_unknown")])
def test_a_wrong_command_is_one_line(ask, flags, code, monkeypatch, tmp_path):
    """Exit code 2."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))  # where nothing was launched
    exit_code, text = ask("status", *flags)
    assert exit_code == 2 and text.endswith(f" [{code}]\n") and text.count("\n") == 1
