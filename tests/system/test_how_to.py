"""The commands of the how-to pages, run in an empty folder; test_tutorial.py carries out the tutorial, page by page.

Each is run as the page has it, but for flags that make the training short, with one worker where that is enough.
"""

from __future__ import annotations

import re
import signal

import pytest

from tests.pages import Reader, block, run_script


@pytest.fixture
def reader(start_process, tmp_path):
    """A function that returns a reader with flags of its own, in the folder of the test."""
    return lambda **flags: Reader(tmp_path, start_process, **flags)


def test_a_training_is_evaluated_exported_and_predicts(reader, tmp_path):
    """The SavedModel predicts what the checkpoint does, to the last digit."""
    reader(train_steps="60", num_workers="1").run(block("docs/inference.md", "bash", "python -m ps_train evaluate"))
    predicted, served = ((tmp_path / name).read_text() for name in ("predictions.csv", "served.csv"))
    assert predicted == served and len(predicted.splitlines()) == 2001


def test_the_best_checkpoint_is_kept_and_exported(reader, tmp_path):
    """By the chief, while it trains."""
    reader(dataset="digits", train_steps="60", eval_steps="20", train_dir="run", num_workers="1").run(
        block("docs/inference.md", "bash", "python -m ps_train launch --eval_steps"))
    assert list((tmp_path / "run/best").glob("model.ckpt-*.index"))
    assert list((tmp_path / "exported/best").glob("*/saved_model.pb"))


def test_a_training_is_watched_saved_stopped_and_reported(reader, start_process, tmp_path):
    """All of its tasks end; `resume` prints its command; the report is one page."""
    follower = reader(num_workers="1")
    training = follower.start("ps_train launch --dataset=tests.plugins.slow --train_steps=1000000 --train_dir=run")
    start_process.wait_for_line(training, "examples/s")  # before that there may be no ps yet, which is told at once
    first = follower.num_run + 1
    follower.run(block("docs/operate.md", "bash", "ps_train status"))
    assert start_process.exit_code(training) == 143, start_process.log(training)
    status, save, stop, resume = (start_process.log(f"command-{first + number}") for number in range(4))
    assert "on tests.plugins.slow" in status and "saved " in save and "all parameter servers have ended" in stop
    assert "--train_steps=1000000" in resume
    follower.run(block("docs/report.md", "bash", "ps_train report"))
    for path in (tmp_path / "run/report.html", tmp_path / "monday.html"):
        assert path.read_text().lower().startswith("<!doctype html>")


def test_a_training_has_its_flags_in_a_file(reader, start_process, tmp_path):
    """Those of the command line replace some; other verbs find the training with the same file."""
    follower = reader(train_steps="20", num_workers="1")
    (tmp_path / "run.yaml").write_text(block("docs/config_files.md", "yaml", "# run.yaml"))
    launch, _, status, evaluate = block("docs/config_files.md", "bash", "ps_train launch --config").splitlines()
    for line in (launch, status, evaluate, block("docs/config_files.md", "bash", "ps_train config --config")):
        follower.run(line)
    trained, shown, evaluated, config = (start_process.log(f"command-{number + 1}") for number in range(4))
    assert "finished" in shown and "After 20 training steps" in trained and "After 20 training steps" in evaluated
    assert re.search(r"^batch_size: 50 +# command line$", config, re.MULTILINE)
    assert re.search(r"^params: validation_size=100 +# run.yaml, line 7$", config, re.MULTILINE)


def test_servers_that_run_already_are_used(reader, start_process):
    """The client trains and ends; the servers do not."""
    follower = reader(dataset="digits", train_steps="20")
    *serve, train = block("docs/clusters.md", "bash", "python -m ps_train serve").splitlines()
    servers = [follower.start(line) for line in serve]
    follower.run(train)
    for name in servers:
        assert start_process.poll(name) is None
        start_process.signal(name, signal.SIGTERM)
    assert [start_process.exit_code(name) for name in servers] == [143] * 2


def test_workers_join_an_elastic_training(reader, start_process, tmp_path):
    """A ps and two workers, none of which is told of all others."""
    plugin = "tests.plugins.tiny"  # with a gate: nobody waits at the end for a worker that comes when training is over
    follower = reader(model=plugin, dataset=plugin, train_steps="40", log_steps="10",
                      params=f"gate={tmp_path}/gate,gate_batch=10")
    names = [follower.start(line) for line in block("docs/kubernetes.md", "bash", "python -m ps_train").splitlines()]
    for name in names[1:]:
        start_process.wait_for_line(name, "examples/s")
    (tmp_path / "gate.0").touch()  # every worker of an elastic cluster has the shard 0
    assert {start_process.exit_code(name) for name in names} == {0}


def test_a_profile_is_printed_and_its_timeline_written(reader, start_process, tmp_path):
    """Of each worker."""
    # In async a worker may be held up while the other one takes the steps that are profiled.
    follower = reader(dataset="digits", train_dir="run", sync_replicas="true")
    follower.run(block("docs/profile.md", "bash", "python -m ps_train launch"))
    assert "a step took" in start_process.log("command-1")
    assert (tmp_path / "run/profile/worker-0-steps-200-220.json").exists()


def test_clicks_are_written_and_trained_on(reader):
    """In equal shares, and in ranges that ps 0 hands out."""
    follower = reader(model="models.logistic_regression", train_dir="first", train_steps="20", num_workers="1")
    follower.run(block("docs/data.md", "bash", "python -m data.clicks").replace(
        "=1000000", "=4000 --params=eval_examples=500,vocab=3000"))
    follower.flags = {"model": "models.logistic_regression", "data_dir": "clicks", "train_dir": "second",
                      "num_epochs": "1", "num_workers": "1"}
    follower.run(block("docs/data.md", "bash", "python -m ps_train launch --dataset=data.criteo --dynamic_sharding"))


def test_a_model_with_tables_trains(reader, start_process):
    """DeepFM, whose log loss is printed."""
    reader(train_steps="20", train_dir="run", num_workers="1").run(
        block("docs/embeddings.md", "bash", "python -m ps_train launch"))
    assert "auc = " in start_process.log("command-1")


def test_a_checkpoint_is_converted_there_and_back(reader, start_process, tmp_path):
    """From graph training to Keras, and to graph training again, which goes on with it."""
    follower = reader(dataset="digits", train_steps="30", num_workers="1")
    follower.run("python -m ps_train launch --model=models.mlp --train_dir=/tmp/graph")
    follower.run(block("docs/migrate.md", "bash", "python -m ps_train convert"))
    follower.flags["train_steps"] = "60"
    follower.run("python -m ps_train launch --model=models.mlp --train_dir=/tmp/graph-again")
    assert "continuing from" in start_process.log(f"command-{follower.num_run}")


def test_a_program_trains_with_a_function_of_its_own(tmp_path):
    """The network of the page learns; its module is in the train_dir."""
    text = block("docs/python.md", "python", "DEFAULT_PARAMS")
    text = text.replace("train_steps=500", "train_steps=100, num_ps=1, num_workers=1")
    (tmp_path / "program.py").write_text(f"{text}\nprint(training.launch().wait(timeout_secs=150))\n")
    output = run_script(str(tmp_path / "program.py"), tmp_path, ["launch"])
    assert re.search(r"^step 100: the global step reached train_steps; accuracy 0\.[5-9]\d*; \d+ s$", output,
                     re.MULTILINE), output
    assert "def network(" in (tmp_path / "run" / "program_model.py").read_text()
