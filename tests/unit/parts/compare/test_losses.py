"""The loss of each step, from event files, CSV files and logs."""

from __future__ import annotations

import csv
import gzip
import math

import pytest

from ps_train.parts.compare.flags import CompareConfig
from ps_train.parts.compare.losses import read_losses
from tests.errors import raises
from tests.unit.parts.report.test_curves import scalar, write


@pytest.mark.parametrize(("line", "step", "loss"), [
    ("INFO:tensorflow:loss = 0.48924983, step = 171 (72.525 sec)", 171, 0.48924983),
    ("worker:0 | INFO:tensorflow:loss = 15.13, steps = 1", 1, 15.13),
    ("12:00:01 step 1,200 of 9,000  loss 4.57e-1  42.0 steps/s", 1200, 0.457),
    ('{"step": 300, "message": "step 300 of 400", "loss": 0.5}', 300, 0.5),
    ('{"step": 300, "loss": 0.5, "metrics": {"accuracy": 0.9}}', 300, 0.5),
    ("Step: 7, Training loss: -.5", 7, -0.5),
    ("global_step=9 loss=inf", 9, float("inf")),
    ('{"step": 100.0, "loss": 0.4}', 100, 0.4), ("step 8 loss .5e-3", 8, 0.0005),
    ("loss = 0.5, step = 9\nSaving dict for global step 9: accuracy = 0.8, global_step = 9, loss = 13.2", 9, 0.5),
    ("step 9 of 20  loss 0.5\n12:00:01 evaluation at step 9: loss 13.2, accuracy 0.8000", 9, 0.5),
    ('{"step": 9, "loss": 0.5, "train_steps": 20}\n{"step": 9, "message": "", "loss": 3.2, "metrics": {}}', 9, 0.5),
    ("step 9 of 20  loss 0.5\n12:00:01 step 9, on held-out data: loss 13.2000, auc 0.8000", 9, 0.5),
    ('{"step": 9, "metrics": {"loss": 0.5}}', 9, 0.5),
])
def test_a_line_of_a_log_has_a_step_and_a_loss(tmp_path, line, step, loss):
    """As Estimators, hooks, ps_train and most scripts print them; all other lines are left out."""
    path = tmp_path / "log"
    path.write_text(f"INFO:tensorflow:global_step/sec: 5.8\nLoss for final step: 0.3\n{line}\n")
    assert read_losses(str(path), CompareConfig()) == {step: loss}


def test_a_compressed_log_is_read(tmp_path):
    """As logrotate leaves it; a damaged one is one line."""
    path, content = tmp_path / "worker-0.log.1.gz", gzip.compress(b"step 9 of 20  loss 0.5\n")
    path.write_bytes(content)
    assert read_losses(str(path), CompareConfig()) == {9: 0.5}
    for damaged in (b"step 9 of 20  loss 0.5\n", content[:-9], content[:12] + b"\xff" + content[13:]):
        path.write_bytes(damaged)
        with raises("input_file_unreadable") as caught:
            read_losses(str(path), CompareConfig())
        assert "None" not in str(caught.value)


def test_a_pattern_reads_any_other_line(tmp_path):
    """It replaces the search for both words; a step that comes twice has the mean."""
    path = tmp_path / "log"
    path.write_text("After 20 updates: cost 2.0\nAfter 10 updates: cost 4.0\nAfter 20 updates: cost 3.0\n")
    config = CompareConfig(pattern=r"After (?P<step>\d+) updates: cost (?P<loss>\S+)")
    assert list(read_losses(str(path), config).items()) == [(10, 4.0), (20, 2.5)]
    with raises("no_losses"):
        read_losses(str(path), CompareConfig())
    path.write_text("After 20 updates: cost 2.0; next\n")
    with raises("bad_line") as caught:
        read_losses(str(path), config)
    assert "line 1: got '20' and '2.0;'" in str(caught.value)


def test_workers_that_diverge_in_both_directions_have_no_mean(tmp_path):
    """Nor does a line count in which the pattern finds only one of the two."""
    path = tmp_path / "log"
    path.write_text("warm up loss 3\nstep 1 loss inf\nstep 1 loss -inf\nstep 2 loss 1\n")
    for pattern in ("", r"(step (?P<step>\d+) )?loss (?P<loss>\S+)"):
        losses = read_losses(str(path), CompareConfig(pattern=pattern))
        assert [*losses] == [1, 2] and math.isnan(losses[1]) and losses[2] == 1


@pytest.mark.parametrize(("text", "tag", "losses"), [
    ("Wall time,Step,Value\n1.5,0,0.75\n2.5,10,0.5\n", "", {0: 0.75, 10: 0.5}),
    ("step,auc,Train_loss\n5,0.9,0.25\n", "", {5: 0.25}),
    ("step,auc,loss\n5,0.9,0.25\n", "auc", {5: 0.9}), ("\ufeffstep,value\n5.0,0.25\n", "", {5: 0.25}),
])
def test_a_csv_file_has_columns(tmp_path, text, tag, losses):
    """The download of TensorBoard, or a file with a column for the loss."""
    path = tmp_path / "losses.csv"
    path.write_text(text, encoding="utf-8")
    assert read_losses(str(path), CompareConfig(tag=tag)) == losses


@pytest.mark.parametrize(("text", "code"), [
    ("", "csv_header_missing"), ("time,loss\n1,2\n", "csv_header_missing"), ("step,auc\n1,2\n", "no_losses"),
    ("step,a_loss,b_loss\n1,2,3\n", "no_losses"), ("step,loss\n", "no_losses"), ("step,loss\n1,2\n2,x\n", "bad_line"),
    ("step,loss\n1.5,2\n", "bad_line"),
    ("step,loss\n1\n", "bad_line"),
])
def test_a_csv_file_of_another_form_is_refused(tmp_path, text, code):
    """Nothing is guessed from a column that may be another one."""
    path = tmp_path / "losses.csv"
    path.write_text(text)
    with raises(code):
        read_losses(str(path), CompareConfig())


def test_a_csv_file_that_is_not_utf8_is_one_line(tmp_path):
    """As a spreadsheet may write it."""
    path = tmp_path / "losses.csv"
    path.write_bytes("step,loss,größe\n1,2,3\n".encode("latin-1"))
    with raises("input_file_unreadable"):
        read_losses(str(path), CompareConfig())


def test_a_csv_file_with_a_field_that_is_too_long_is_one_line(tmp_path):
    """As behind a quotation mark that has no other one: Python's reader has a limit, and there was a traceback."""
    path = tmp_path / "losses.csv"
    path.write_text('step,loss,note\n1,2,"no end\n' + "2,3,x\n" * 1000)
    limit = csv.field_size_limit(1000)
    try:
        with raises("input_file_unreadable") as caught:
            read_losses(str(path), CompareConfig())
    finally:
        csv.field_size_limit(limit)
    assert f"cannot read {path}: field larger than field limit (1000)" in str(caught.value)


def test_every_point_of_event_files_counts(tmp_path):
    """A report would thin them; the tag may have a name scope."""
    write(tmp_path, 1, [scalar(step, step / 2, "head/loss") for step in range(2500)])
    losses = read_losses(str(tmp_path), CompareConfig())
    assert len(losses) == 2500 and losses[1001] == 500.5
    with raises("no_losses"):
        read_losses(str(tmp_path), CompareConfig(tag="accuracy"))


def test_a_folder_without_event_files_is_refused(tmp_path):
    """Rather than taken for a training without losses. Those in it that have some, as of Keras, are named."""
    for name in ("validation", "train"):
        with raises("no_losses") as caught:
            read_losses(str(tmp_path), CompareConfig())
        (tmp_path / name).mkdir()
        write(tmp_path / name, 1, [scalar(1, 0.5)])
    assert str(caught.value).endswith(f"give {tmp_path}/validation")
    with raises("no_losses") as caught:
        read_losses(str(tmp_path), CompareConfig())
    assert f"give {tmp_path}/train or {tmp_path}/validation" in str(caught.value)
