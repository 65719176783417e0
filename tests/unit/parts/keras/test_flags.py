"""The flags of `ps_train keras` and `ps_train convert`."""

from __future__ import annotations

import contextlib
import importlib.metadata

import pytest

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.parts.keras import flags
from ps_train.parts.keras import verb as keras_verbs
from tests.errors import codes_of, raises


def test_the_flags_of_train_keep_their_meaning():
    """Those that mean something here have the same defaults, but for model, hidden units and learning rate."""
    here, there = flags.parse_keras_task([], {}), Config()
    shared = fields.rules(flags.KerasConfig).keys() & fields.rules(Config).keys()
    differing = {name for name in shared if getattr(here, name) != getattr(there, name)}
    assert differing == {"model", "hidden_units", "learning_rate", "train_dir"}
    assert (here.model, here.hidden_units, here.learning_rate) == ("models.keras_mlp", 256, 0.001)
    assert here.train_dir.endswith("ps_train/keras_mlp")


@pytest.mark.parametrize(("argv", "code", "part"), [
    (["--strategy=mirrored", "--communication=RING"], "flag_without_effect",
     "--communication: has an effect only with --strategy=multi_worker_mirrored"),
    (["--num_virtual_devices=2"], "flag_without_effect",
     "--num_virtual_devices: has an effect only with --strategy=mirrored or central_storage"),
    (["--strategy=one_device", "--job_name=worker"], "flag_without_effect",
     "--job_name: has an effect only with --strategy=multi_worker_mirrored or parameter_server"),
    (["--devices=cpu:0"], "flag_without_effect", "--devices: has an effect only with --strategy=one_device or "),
    (["--strategy=central_storage", "--cross_device_ops=nccl"], "flag_without_effect", "--cross_device_ops: "),
    (["--strategy=mirrored", "--variable_partitioner=fixed:2"], "flag_without_effect", "--variable_partitioner: "),
    (["--strategy=mirrored", "--devices=cpu:0,gpu:0"], "flag_malformed", "--devices: got 'cpu:0,gpu:0'"),
    (["--strategy=mirrored", "--devices=cpu:0,cpu:0"], "flag_malformed", "--devices: got 'cpu:0,cpu:0'"),
    (["--strategy=mirrored", "--devices=0,1"], "flag_malformed", "--devices: got '0,1'"),
    (["--strategy=parameter_server", "--variable_partitioner=fixed:0"], "flag_malformed",
     "--variable_partitioner: got 'fixed:0'"),
    (["--strategy=mirrored", "--devices=cpu:0", "--num_gpus=1"], "flags_conflict", "--num_gpus: "),
    (["--strategy=parameter_server", "--on_bad_record=skip"], "flags_conflict", "--on_bad_record: got 'skip'"),
    (["--strategy=one_device", "--devices=cpu:0,cpu:1"], "flags_conflict", "--devices: got 'cpu:0,cpu:1'"),
])
def test_flags_that_do_not_fit_the_strategy_are_refused(argv, code, part):
    """Before anything is imported; the message has the flag and its value."""
    with raises(code) as caught:
        flags.parse_keras_task(argv, {})
    assert str(caught.value).startswith(part)


@pytest.mark.parametrize("flag", [
    "--strategy=mirorred", "--sync_replicas", "--strategy=multi_worker_mirrored --communication=MPI",
    "--strategy=parameter_server --coordinator_host=a", "--validation_steps=0", "--steps_per_epoch=0",
    "--strategi=tpu"])
def test_a_value_or_a_flag_that_keras_does_not_have_is_refused(flag):
    """By the rules of all flags; the message has the last flag."""
    with pytest.raises(ConfigError, match=flag.split()[-1].partition("=")[0]):
        flags.parse_keras_task(flag.split(), {})


@pytest.mark.parametrize("argv", [
    ["--strategy=mirrored", "--num_workers=2"], ["--strategy=multi_worker_mirrored", "--num_ps=1"],
    ["--strategy=parameter_server", "--coordinator_host=a:1"], ["--strategy=parameter_server", "--job_name=ps"]])
def test_launch_refuses_flags_that_do_not_fit(argv):
    """Those of the launcher, too, must fit the strategy, and launch places the tasks itself."""
    with pytest.raises(ConfigError, match=f"^{argv[1].partition('=')[0]}: "):
        flags.parse_keras_launch(argv)


def test_the_flags_of_keras_are_unknown_elsewhere():
    """The verb `train` has none of them, as they would do nothing there."""
    keras_only = fields.rules(flags.KerasConfig).keys() - fields.rules(Config).keys()
    assert keras_only == {"strategy", "num_virtual_devices", "communication", "coordinator_host", "tpu_name",
                          "steps_per_epoch", "validation_epochs", "validation_steps", "devices", "cross_device_ops",
                          "variable_partitioner"}


def _install(monkeypatch, versions):
    def version(package):
        if package in versions:
            return versions[package]
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)


@pytest.mark.parametrize(("versions", "code"), [
    ({"tensorflow": "2.21.0"}, "package_missing"),
    ({"tensorflow": "2.15.1", "tf_keras": "2.21.0"}, "tf_keras_version"),
    ({"tensorflow": "2.21.0", "tf_keras": "2.21.1"}, None),
    ({"tf_keras": "2.21.0"}, None),
    ({"tensorflow-cpu": "2.16.1", "tf_keras": "2.21.0"}, "tf_keras_version"),
    ({"tensorflow-cpu": "2.21.0", "tf_keras": "2.21.1"}, None),
])
def test_tf_keras_must_be_installed(monkeypatch, versions, code):
    """Of TensorFlow's minor version; TensorFlow itself may be installed under another name."""
    _install(monkeypatch, versions)
    with raises(code) if code else contextlib.nullcontext():
        keras_verbs.check_installed()


@pytest.mark.parametrize(("versions", "advice"), [
    ({"tensorflow": "2.15.1"}, "`pip install 'tf_keras==2.15.*'`, or ps_train with its extra"),
    ({"tensorflow-cpu": "2.21.0"}, "`pip install --no-deps 'tf_keras==2.21.*'`"),
    ({}, "`pip install --no-deps 'tf_keras'`"),
])
def test_no_second_tensorflow_is_advised(monkeypatch, versions, advice):
    """tf_keras requires the package `tensorflow`, which would overwrite the files of tensorflow-cpu."""
    _install(monkeypatch, versions)
    with raises("package_missing") as caught:
        keras_verbs.check_installed()
    assert advice in str(caught.value)
    assert ("ps_train[keras]" in str(caught.value)) == ("tensorflow" in versions)


def test_convert_says_what_is_missing():
    """Everything together."""
    with pytest.raises(ConfigError) as caught:
        flags.parse_convert(["--train_steps=5", "--train_dir="])
    assert codes_of(caught.value)[1:] == ["flag_missing"] * 3
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "--train_steps", "--to", "--train_dir", "--output_dir"]
    with raises("path_is_pattern"):
        flags.parse_convert(["--to=graph", "--train_dir=a", "--output_dir=b[1]"])
    config = flags.parse_convert(["--to=keras", "--train_dir=a", "--output_dir=b"])
    assert (config.to, config.train_dir, config.output_dir, config.model) == ("keras", "a", "b", "models.mlp")
