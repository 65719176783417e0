"""The flags and the Config that they become."""

from __future__ import annotations

import dataclasses
import os
import tempfile

import pytest

from ps_train.config import folders, launch
from ps_train.config import task as config
from ps_train.config.launch import LaunchConfig
from ps_train.config.task import Config
from ps_train.errors import ConfigError
from ps_train.parts.profile.flags import parse_steps
from ps_train.runtime import reports
from ps_train.verbs import train
from tests.errors import codes_of, error_of


@pytest.mark.parametrize(("name", "default"), [
    ("data_dir", "/tmp/mnist-data"),
    ("download_only", False),
    ("hidden_units", 100),
    ("train_steps", 20000),
    ("batch_size", 100),
    ("learning_rate", 0.01),
    ("task_index", None),
    ("job_name", None),
    ("num_gpus", None),
    ("replicas_to_aggregate", None),
    ("sync_replicas", False),
    ("existing_servers", False),
    ("ps_hosts", "localhost:2222"),
    ("worker_hosts", "localhost:2223,localhost:2224"),
])
def test_the_defaults_are_those_of_dist_mnist(name, default):
    """A classic command line means what it meant."""
    assert getattr(config.parse_task([], {}), name) == default


def test_a_classic_command_line_is_read():
    """dist_mnist's own flags, with one and two dashes."""
    parsed = config.parse_task(
        ["--ps_hosts=a:1", "--worker_hosts=b:1,c:1", "-job_name=worker", "--task_index", "1", "--sync_replicas"], {})
    assert (parsed.ps_hosts, parsed.worker_hosts, parsed.job_name, parsed.task_index) == ("a:1", "b:1,c:1", "worker", 1)
    assert parsed.sync_replicas is True
    assert parsed.given == {"ps_hosts", "worker_hosts", "job_name", "task_index", "sync_replicas"}


def test_a_warm_up_without_local_steps_is_refused():
    """It would do nothing."""
    assert codes_of(error_of(Config, communication_warmup_steps=10)) == ["flag_without_effect"]
    assert Config(communication_warmup_steps=10, communication_period=2).communication_warmup_steps == 10


def test_tf_config_comes_from_the_environment():
    """Its text is kept as it is, and is no flag."""
    assert config.parse_task([], {"TF_CONFIG": "{"}).tf_config == "{"
    assert config.parse_task([], {}).tf_config == ""
    assert error_of(config.parse_task, ["--tf_config={}"], {}).code == "flag_unknown"


@pytest.mark.parametrize(("argv", "folder"), [
    ([], os.path.join(tempfile.gettempdir(), "ps_train", "mlp")),
    (["--model=models.cnn"], os.path.join(tempfile.gettempdir(), "ps_train", "cnn")),
    (["--model=softmax"], os.path.join(tempfile.gettempdir(), "ps_train", "softmax")),
    (["--train_dir="], os.path.join(tempfile.gettempdir(), "ps_train", "mlp")),
    (["--train_dir=runs/1"], "runs/1"),
])
def test_train_dir_is_the_same_for_all_tasks_of_a_machine(argv, folder):
    """The default is named after the model, where a second run continues."""
    assert config.parse_task(argv, {}).train_dir == folder


def test_existing_servers_are_told_paths_that_mean_the_same_to_them(tmp_path, monkeypatch):
    """Issue: they wrote the checkpoints to that name in their own working directories, and the training was lost."""
    monkeypatch.chdir(tmp_path)
    paths = {"train_dir": "run", "data_dir": "../data", "init_checkpoint": "old/model.ckpt-5"}
    argv = [f"--{name}={path}" for name, path in paths.items()]
    known = config.parse_task([*argv, "--existing_servers"], {})
    assert {name: getattr(known, name) for name in paths} == {
        "train_dir": f"{tmp_path}/run", "data_dir": f"{tmp_path.parent}/data",
        "init_checkpoint": f"{tmp_path}/old/model.ckpt-5"}
    own = config.parse_task(argv, {})
    assert {name: getattr(own, name) for name in paths} == paths
    assert config.parse_task(["--existing_servers", "--train_dir=s3://b/run"], {}).train_dir == "s3://b/run"
    (tmp_path / "a[1]").mkdir()
    monkeypatch.chdir("a[1]")
    assert error_of(config.parse_task, ["--existing_servers", "--train_dir=run"], {}).code == "path_is_pattern"


@pytest.mark.parametrize(("flag", "got"), [
    ("--task_index=-1", "-1"),
    ("--task_index=99999999999999999999", "99999999999999999999"),
    ("--job_name=wroker", "'wroker'"),
    ("--num_gpus=-1", "-1"),
    ("--hidden_units=0", "0"),
    ("--seed=-1", "-1"),
    ("--train_steps=0", "0"),
    ("--batch_size=0", "0"),
    ("--batch_size=99999999999999999999", "99999999999999999999"),
    ("--learning_rate=0", "0.0"),
    ("--learning_rate=-0.1", "-0.1"),
    ("--learning_rate=nan", "nan"),
    ("--learning_rate=1e400", "inf"),
    ("--optimizer=Adam", "'Adam'"),
    ("--adam_beta1=1", "1.0"),
    ("--adam_beta2=1", "1.0"),
    ("--save_model_secs=-1", "-1"),
    ("--save_model_secs=10000000000", "10000000000"),
    ("--save_summaries_steps=-1", "-1"),
    ("--log_steps=-1", "-1"),
    ("--start_timeout_secs=0", "0.0"),
    ("--start_timeout_secs=1e10", "10000000000.0"),
    ("--step_timeout_secs=1e300", "1e+300"),
    ("--end_timeout_secs=1e10", "10000000000.0"),
    ("--end_timeout_secs=-3", "-3.0"),
    ("--ps_hosts=localhost", "'localhost'"),
    ("--worker_hosts=a:1,b:x", "'b:x'"),
    ("--params=dropout", "'dropout'"),
    ("--profile_steps=200", "'200'"),
    ("--profile_steps=-1:5", "'-1:5'"),
    ("--profile_steps=220:200", "'220:200'"),
    ("--profile_steps=200:200", "'200:200'"),
    ("--profile_steps=200:220\n", r"'200:220\n'"),
    ("--profile_steps=0:1001", "'0:1001'"),
])
def test_refuses_values_out_of_range(flag, got):
    """Each wrong value is refused with the flag, what was given, and what is allowed."""
    error = error_of(config.parse_task, [flag, "--sync_replicas"], {})
    assert str(error).startswith(flag.partition("=")[0])
    assert f"got {got}" in str(error) and len(error.problems) == 1 and "\n" not in str(error)


@pytest.mark.parametrize("number", ["0", "-1"])
def test_replicas_to_aggregate_must_be_positive(number):
    """Fewer than one gradient makes no update."""
    error = error_of(config.parse_task, ["--sync_replicas", f"--replicas_to_aggregate={number}"], {})
    assert codes_of(error) == ["flag_out_of_range"]


@pytest.mark.parametrize("name", ["replicas_to_aggregate", "min_replicas_to_aggregate"])
def test_replicas_to_aggregate_needs_sync_replicas(name):
    """Without --sync_replicas it would silently do nothing."""
    error = error_of(config.parse_task, [f"--{name}=2"], {})
    assert codes_of(error) == ["flag_without_effect"] and f"--{name}: got 2" in str(error)


def test_a_sum_of_gradients_needs_gradients():
    """An async update has one gradient; rounds push changes of slots, too, and a sum of averages is no average."""
    assert "--sync_replicas" in str(error_of(config.parse_task, ["--sum_embedding_gradients"], {}))
    assert "--communication_period" in str(error_of(
        config.parse_task, ["--sync_replicas", "--sum_embedding_gradients", "--communication_period=4"], {}))


def test_deltas_need_checkpoints():
    """Which --save_model_secs saves by default; without any, nothing would be saved before the end."""
    flags = {"save_model_secs": 0, "save_delta_secs": 60.0}
    assert codes_of(error_of(Config, **flags)) == ["flag_without_effect"]
    assert Config(**flags, save_model_steps=100).save_delta_secs == Config(save_delta_secs=60.0).save_delta_secs == 60
    assert Config(save_model_secs=0).save_delta_secs == 0


@pytest.mark.parametrize("flag", [
    "sum_embedding_gradients=true", "communication_period=4", "sync_engine=tensorflow", "clip_norm=1"])
def test_async_embeddings_need_sync_and_nothing_that_aggregates_rows(flag):
    """Without --sync_replicas they would change nothing; the others are about rows and variables together."""
    assert codes_of(error_of(config.parse_task, ["--async_embeddings"], {})) == ["flag_without_effect"]
    error = error_of(config.parse_task, ["--sync_replicas", "--async_embeddings", f"--{flag}"], {})
    assert f"--{flag.split('=')[0]}" in str(error) and "flags_conflict" in codes_of(error)
    assert len(error.problems) == 1


def test_the_floor_is_not_above_the_number_of_gradients():
    """No update could ever be complete."""
    flags = ["--sync_replicas", "--replicas_to_aggregate=2", "--min_replicas_to_aggregate=3"]
    assert codes_of(error_of(config.parse_task, flags, {})) == ["flags_conflict"]


def test_profile_steps_are_read():
    """The first one is traced, the last one is not; none where the flag is not given."""
    assert parse_steps("--profile_steps", "200:220") == range(200, 220)
    assert parse_steps("--profile_steps", "") == range(0)


def test_profile_steps_must_begin_before_training_ends():
    """Otherwise nothing would be traced, which the user would see only at the end."""
    assert "--train_steps=600" in str(error_of(
        config.parse_task, ["--profile_steps=600:620", "--train_steps=600"], {}))
    assert config.parse_task(["--profile_steps=599:620", "--train_steps=600"], {}).profile_steps == "599:620"


def test_all_wrong_values_are_reported_together():
    """Numbers, choices, addresses and parameters."""
    error = error_of(config.parse_task, [
        "--batch_size=many", "--optimizer=adma", "--ps_hosts=x", "--params=y", "--learning_rate=-1"], {})
    assert [line.split(":")[0] for line in error.problems] == [
        "--ps_hosts entry 0", "--params", "--learning_rate", "--optimizer", "--batch_size"]


def test_a_config_that_a_program_makes_is_checked_too():
    """Not only a command line is refused."""
    assert Config(batch_size=8).batch_size == 8
    assert codes_of(error_of(Config, batch_size=0)) == ["flag_out_of_range"]
    assert codes_of(error_of(LaunchConfig, num_ps=0)) == ["flag_out_of_range"]
    with pytest.raises(ConfigError):
        dataclasses.replace(Config(), train_steps=-5)


def test_a_config_is_frozen():
    """No module can write to what the user said."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().batch_size = 3


@pytest.mark.parametrize("flag", ["existing_servers", "download_only"])
def test_serve_refuses_what_it_cannot_do(flag):
    """A server neither uses other servers nor fetches data."""
    assert train.parse_serve([f"--no{flag}"], {}) == config.parse_task([f"--no{flag}"], {})
    error = error_of(train.parse_serve, [f"--{flag}"], {})
    assert codes_of(error) == ["flag_of_another_verb"] and f"--{flag}: " in str(error)


def test_launch_reads_its_own_flags_and_those_of_the_tasks():
    """`given` names only the flags of the tasks."""
    task, launch_config = launch.parse_launch(["--num_ps=1", "--num_workers=4", "--tmux", "--batch_size=7",
                                                "--log_dir=x"])
    assert launch_config == LaunchConfig(num_ps=1, num_workers=4, tmux=True, log_dir="x")
    assert task.batch_size == 7
    assert task.given == {"batch_size"}


def test_launch_places_the_tasks_itself():
    """Every flag that places a task is refused, all of them together."""
    error = error_of(launch.parse_launch, ["--job_name=ps", "--task_index=0", "--ps_hosts=a:1", "--worker_hosts=b:1",
                                           "--existing_servers", "--cluster_from=slurm", "--cluster_tasks=ps:1",
                                           "--cluster_port=1", "--cluster_service=a"])
    assert set(codes_of(error)) == {"flag_set_by_launch"}
    assert {line.split(":")[0].strip("-") for line in error.problems} == launch.PLACED_BY_LAUNCH


def test_launch_reports_its_own_and_the_tasks_wrong_values_together():
    """A user sees all of them at once."""
    error = error_of(launch.parse_launch, ["--num_ps=0", "--batch_size=0", "--num_workers=x"])
    assert [line.split(":")[0] for line in error.problems] == ["--num_ps", "--num_workers", "--batch_size"]


def test_a_task_has_no_flags_of_launch():
    """--num_ps means nothing to a single task."""
    assert error_of(config.parse_task, ["--num_ps=1"], {}).code == "flag_unknown"


def test_epochs_end_a_training_that_was_given_no_steps():
    """The default of --train_steps is no end then; a number that was given is."""
    by_epochs = config.parse_task(["--dynamic_sharding", "--num_epochs=3"], {})
    assert by_epochs.train_steps >= reports.NO_STEP_LIMIT
    assert config.parse_task(["--dynamic_sharding", "--num_epochs=3", "--train_steps=50"], {}).train_steps == 50
    for mode in ([], ["--sync_replicas"]):
        assert config.parse_task(["--dynamic_sharding", "--follow", *mode], {}).train_steps >= reports.NO_STEP_LIMIT
    assert config.parse_task(["--dynamic_sharding"], {}).train_steps == 20000


@pytest.mark.parametrize(("flags", "reason"), [
    (["--num_epochs=2"], "--dynamic_sharding"), (["--dynamic_sharding", "--num_epochs=0"], "--num_epochs: got 0"),
    (["--dynamic_sharding", "--sync_replicas", "--sync_engine=tensorflow"], "--sync_engine=tensorflow"),
    (["--follow"], "--dynamic_sharding: not given"), (["--follow_idle_secs=5"], "--follow_idle_secs: got 5"),
    (["--dynamic_sharding", "--follow", "--num_epochs=1"], "--num_epochs: got 1 with --follow"),
    (["--dynamic_sharding", "--follow", "--sync_replicas", "--min_replicas_to_aggregate=2",
      "--replicas_to_aggregate=2"], "--min_replicas_to_aggregate: got 2 with --follow"),
])
def test_flags_that_do_not_fit_dynamic_sharding_are_refused(flags, reason):
    """Before a socket opens."""
    assert reason in str(error_of(config.parse_task, flags, {}))


def test_a_second_user_of_a_machine_has_a_default_folder_too(monkeypatch, tmp_path):
    """The first user's belongs to that user; the folder of a URL is beside it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "ps_train").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path / "ps_train"))
    own = f"{tmp_path}/ps_train-{os.getuid()}"
    assert Config().train_dir == f"{own}/mlp"
    assert folders.local_folder("s3://bucket/run").startswith(f"{own}/stores/s3-bucket-run-")
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert Config().train_dir == f"{tmp_path}/ps_train/mlp"
