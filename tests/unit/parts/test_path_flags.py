"""Flags that take a path, of all verbs."""

from __future__ import annotations

import re

import pytest

from ps_train.config import fields, launch, task
from ps_train.errors import ConfigError
from ps_train.parts.control import verb as control_flags
from ps_train.parts.doctor import verb as doctor_flags
from ps_train.parts.inference import flags as inference_flags
from ps_train.parts.keras import flags as keras_flags
from ps_train.parts.legacy.flags import ScriptLaunchConfig
from ps_train.parts.plan import verb as plan_flags
from ps_train.parts.report import verb as report_flags
from ps_train.verbs.new import NEW
from ps_train.verbs.verb import name_train_dir


def _with_paths():
    """Yields (verb, how its flags are read, flag) for each flag of each verb that takes a path."""
    for verb, (read, *classes) in {
            "train": (task.parse_task, task.Config), "launch": (launch.parse_launch, launch.LaunchConfig),
            "launch run": (lambda argv: fields.parse_flags(argv, ScriptLaunchConfig), ScriptLaunchConfig),
            "keras": (keras_flags.parse_keras_task, keras_flags.KerasConfig),
            "convert": (keras_flags.parse_convert, keras_flags.ConvertConfig),
            "evaluate": (inference_flags.parse_evaluate, inference_flags.EvaluateConfig),
            "export": (inference_flags.parse_export, inference_flags.ExportConfig),
            "predict": (inference_flags.parse_predict, inference_flags.PredictConfig),
            "status": (lambda argv: control_flags.parse_control(argv, "status"), control_flags.ControlConfig),
            "report": (report_flags.parse_report, report_flags.ReportConfig),
            "plan": (plan_flags.parse_plan, task.Config),
            "doctor": (doctor_flags.parse_doctor, doctor_flags.DoctorConfig)}.items():
        for name, (rule, _, _) in fields.rules(*classes).items():
            if rule.is_path:
                yield verb, read, name


@pytest.mark.parametrize(("read", "name"), [
    pytest.param(read, name, id=f"{verb} --{name}") for verb, read, name in _with_paths()])
def test_a_url_in_place_of_a_path_is_refused(read, name):
    """A folder called `s3:` was made in its place, and each save failed."""
    with pytest.raises(ConfigError) as caught:
        read([f"--{name}=s3://b/run.npz"])
    assert f"--{name}: got 's3://b/run.npz'; allowed: a path in a file system of this machine; " in str(caught.value)


def test_every_flag_that_something_is_written_to_is_a_path():
    """These are the ones that a URL would break."""
    found = {name for _, _, name in _with_paths()}
    assert {"train_dir", "export_dir", "output", "output_dir", "log_dir", "input"} <= found
    assert found.isdisjoint({"data_dir", "saved_model", "init_checkpoint"})  # TensorFlow reads these


def test_a_url_of_a_file_is_refused_with_its_path():
    """The hint can be typed as it is."""
    with pytest.raises(ConfigError, match=re.escape("--log_dir: got 'file:///tmp/run'; leave file:// out: /tmp/run")):
        launch.parse_launch(["--log_dir=file:///tmp/run"])


def test_a_password_in_a_url_is_not_repeated():
    """It would be in the log of a scheduler."""
    with pytest.raises(ConfigError) as caught:
        inference_flags.parse_evaluate(["--train_dir=s3://me:s3cret@b/run"])
    assert "s3://me:***@b/run" in str(caught.value)


@pytest.mark.parametrize(("read", "argument"), [
    (lambda words: report_flags.parse_report(name_train_dir(words, report_flags.ReportConfig)), "report"), (NEW.run,
     "new")])
def test_a_folder_by_position_is_no_url_either(tmp_path, monkeypatch, read, argument):
    """And nothing is made."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="got 'gs://b/run'; allowed: a path"):
        read(["gs://b/run"])
    assert list(tmp_path.iterdir()) == []
