"""The flags of `ps_train keras` and `ps_train convert`."""

from __future__ import annotations

import importlib.metadata

import pytest

from ps_train.config import fields
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.parts.keras import flags
from ps_train.parts.keras import verb as keras_verbs


def _refusal(function, *arguments):
    with pytest.raises(ConfigError) as caught:
        function(*arguments)
    return str(caught.value)


def test_the_flags_of_train_keep_their_meaning():
    """Those that mean something here have the same defaults, but for model, hidden units and learning rate."""
    here, there = flags.parse_keras_task([], {}), Config()
    shared = fields.rules(flags.KerasConfig).keys() & fields.rules(Config).keys()
    differing = {name for name in shared if getattr(here, name) != getattr(there, name)}
    assert differing == {"model", "hidden_units", "learning_rate", "train_dir"}
    assert (here.model, here.hidden_units, here.learning_rate) == ("models.keras_mlp", 256, 0.001)
    assert here.train_dir.endswith("ps_train/keras_mlp")


def test_train_dir_becomes_absolute(monkeypatch, tmp_path):
    """A ps works in another folder and writes to the same one."""
    monkeypatch.chdir(tmp_path)
    assert flags.parse_keras_task(["--train_dir=runs/1"], {}).train_dir == str(tmp_path / "runs/1")


@pytest.mark.parametrize(("argv", "message"), [
    (["--strategy=mirorred"], "--strategy: got 'mirorred'; allowed: one of default, one_device, mirrored"),
    (["--sync_replicas"], "--sync_replicas: has no effect in `ps_train keras`; leave it out"),
    (["--sync_engine=none"], "--sync_engine: has no effect in `ps_train keras`; leave it out"),
    (["--strategy=mirrored", "--communication=RING"],
     "--communication: has an effect only with --strategy=multi_worker_mirrored, and it is mirrored"),
    (["--num_virtual_devices=2"],
     "--num_virtual_devices: has an effect only with --strategy=mirrored or central_storage, and it is default"),
    (["--strategy=one_device", "--job_name=worker"],
     "--job_name: has an effect only with --strategy=multi_worker_mirrored or parameter_server"),
    (["--strategy=multi_worker_mirrored", "--communication=MPI"], "--communication: got 'MPI'; allowed: one of AUTO"),
    (["--strategy=parameter_server", "--coordinator_host=a"], "--coordinator_host entry 0: got 'a'"),
    (["--strategy=mirrored", "--devices=cpu:0,gpu:0"],
     "--devices: got 'cpu:0,gpu:0'; allowed: devices of one kind, cpu or gpu"),
    (["--strategy=mirrored", "--devices=cpu:0,cpu:0"], "--devices: got 'cpu:0,cpu:0', which names a device twice"),
    (["--strategy=mirrored", "--devices=0,1"], "--devices: got '0'; allowed: devices of one kind, as in cpu:0,cpu:1"),
    (["--strategy=mirrored", "--devices=cpu:0", "--num_gpus=1"], "--num_gpus: --devices selects the devices already"),
    (["--strategy=one_device", "--devices=cpu:0,cpu:1"],
     "--devices: got 'cpu:0,cpu:1'; allowed with --strategy=one_device: one device"),
    (["--devices=cpu:0"], "--devices: has an effect only with --strategy=one_device or mirrored or central_storage"),
    (["--strategy=central_storage", "--cross_device_ops=nccl"],
     "--cross_device_ops: has an effect only with --strategy=mirrored, and it is central_storage"),
    (["--strategy=mirrored", "--variable_partitioner=fixed:2"],
     "--variable_partitioner: has an effect only with --strategy=parameter_server, and it is mirrored"),
    (["--strategy=parameter_server", "--variable_partitioner=fixed:0"],
     "--variable_partitioner: got 'fixed:0'; allowed: min_size:BYTES, fixed:PARTS or max_size:BYTES"),
    (["--validation_steps=0"], "--validation_steps: got 0; allowed: a 64-bit integer of at least 1"),
    (["--steps_per_epoch=0"], "--steps_per_epoch: got 0; allowed: a 64-bit integer of at least 1"),
    (["--strategi=tpu"], "unknown flag --strategi; did you mean --strategy?"),
])
def test_a_wrong_command_line_is_refused(argv, message):
    """In one line, before anything is imported."""
    assert _refusal(flags.parse_keras_task, argv, {}).startswith(message)


@pytest.mark.parametrize(("argv", "message"), [
    (["--strategy=mirrored", "--num_workers=2"], "--num_workers: has an effect only with --strategy=multi_worker_"),
    (["--strategy=multi_worker_mirrored", "--num_ps=1"], "--num_ps: has an effect only with --strategy=parameter_"),
    (["--strategy=parameter_server", "--coordinator_host=a:1"], "--coordinator_host: launch places the tasks itself"),
    (["--strategy=parameter_server", "--job_name=ps"], "--job_name: launch places the tasks itself"),
])
def test_launch_refuses_what_does_not_fit(argv, message):
    """The launcher's own flags, too, fit the strategy."""
    assert _refusal(flags.parse_keras_launch, argv).startswith(message)


def test_the_flags_of_keras_are_unknown_elsewhere():
    """A user of `train` is not told of a flag that would do nothing."""
    own = fields.rules(flags.KerasConfig).keys() - fields.rules(Config).keys()
    assert own == {"strategy", "num_virtual_devices", "communication", "coordinator_host", "tpu_name",
                   "steps_per_epoch", "validation_epochs", "validation_steps", "devices", "cross_device_ops",
                   "variable_partitioner"}


@pytest.mark.parametrize(("versions", "message"), [
    ({"tensorflow": "2.21.0"}, "`ps_train keras` and `ps_train convert` need tf_keras, which is not installed: "
     "`pip install 'tf_keras==2.21.*'`"),
    ({"tensorflow": "2.15.1", "tf_keras": "2.21.0"}, "tf_keras is 2.21.0 and TensorFlow 2.15.1; both must be"),
    ({"tensorflow": "2.21.0", "tf_keras": "2.21.1"}, None),
    ({"tf_keras": "2.21.0"}, None),
])
def test_tf_keras_must_be_there(monkeypatch, versions, message):
    """Of TensorFlow's minor version; TensorFlow itself may be installed under another name."""
    def version(package):
        if package in versions:
            return versions[package]
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    if message is None:
        keras_verbs.check_installed()
    else:
        assert _refusal(keras_verbs.check_installed).startswith(message)


def test_convert_says_what_is_missing():
    """Everything together."""
    text = _refusal(flags.parse_convert, ["--train_steps=5", "--train_dir="])
    assert [line.partition(":")[0] for line in text.splitlines()] == ["--train_steps", "--to", "--train_dir",
                                                                      "--output_dir"]
    told = flags.parse_convert(["--to=keras", "--train_dir=a", "--output_dir=b"])
    assert (told.to, told.train_dir, told.output_dir, told.model) == ("keras", "a", "b", "models.mlp")
