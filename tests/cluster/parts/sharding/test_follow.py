"""What reads the files of a training with --follow without being a task of it: some of them are being written."""

from __future__ import annotations

import json
import threading

import pytest

from ps_train import testing
from ps_train.cluster.resolve import find_cluster
from ps_train.config.task import parse_task
from ps_train.parts.inference import on_checkpoint
from ps_train.parts.inference.flags import parse_evaluate, parse_predict
from ps_train.parts.plan import plan
from ps_train.parts.plan.verb import parse_plan
from ps_train.tasks import without_training
from tests.errors import raises
from tests.processes import REPO


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The flags of a training on a folder in which files are being written: one has half a line, another no name."""
    (tmp_path / "schema.json").write_text(json.dumps({"label": "click", "numbers": ["price"], "categories": ["site"]}))
    lines = "click,price,site\n" + "1,2,a\n0,3,b\n" * 50
    for name in ("train-0.csv", "eval-0.csv"):
        (tmp_path / name).write_text(f"{lines}0")
    (tmp_path / "train-1.tmp").write_text("clic")
    monkeypatch.chdir(REPO)
    return ["--model=models.logistic_regression", "--dataset=data.csv_files", f"--data_dir={tmp_path}",
            "--params=train_files=train*", "--dynamic_sharding", "--follow"]


@pytest.mark.parametrize("placed", [
    [], ["--ps_hosts=localhost:1", "--worker_hosts=localhost:2", "--job_name=worker"]], ids=["data", "graphs"])
def test_the_check_before_a_training_leaves_out_what_is_being_written(written, placed):
    """Both what `launch` prepares and a download alone; without --follow the file is named."""
    def check(argv):
        config = parse_task([*argv, "--download_only", *placed], {})
        cluster = find_cluster(ps_hosts=config.ps_hosts, worker_hosts=config.worker_hosts, job_name=config.job_name,
                               given=config.given) if placed else None
        without_training.download(config, cluster)

    check(written)
    with raises("header_differs"):
        check(written[:-1])


def test_a_plan_leaves_out_what_is_being_written(written, capsys):
    """It is made while the data is there already."""
    config, cluster, *_ = parse_plan(["--num_ps=1", *written], {})
    plan.print_plan(config, cluster, is_json=True)
    assert "weights" in capsys.readouterr().out


def test_a_checkpoint_of_a_training_that_follows_is_evaluated_on_whole_lines(written, tmp_path, capsys):
    """As its own evaluations are, and so are its predictions; the checkpoint says that it did."""
    flags = {name: value for name, _, value in (word.removeprefix("--").partition("=") for word in written[:-2])}
    testing.run_in_threads(
        flags.pop("model"), flags.pop("dataset"), **flags, dynamic_sharding=True, follow=True, num_ps=1, num_workers=1,
        train_steps=2, batch_size=10, train_dir=tmp_path / "train", log_steps=0)
    train_dir = f"--train_dir={tmp_path / 'train'}"
    on_checkpoint.evaluate_checkpoint(parse_evaluate([train_dir, "--json"]), threading.Event())
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["num_examples"] == 100
    on_checkpoint.predict_examples(parse_predict([train_dir, f"--output={tmp_path / 'out.csv'}"]), threading.Event())
    assert "Wrote 100 predictions" in capsys.readouterr().out
