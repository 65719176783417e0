"""Where a TPU is looked for, how a server of parameter_server ends, and a time limit on training."""

from __future__ import annotations

import socket
import threading
import types

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

pytest.importorskip("tf_keras", reason="Keras training needs the extra `keras`")

from ps_train.cluster.spec import Task
from ps_train.errors import ConfigError
from ps_train.parts.keras import checkpoints, flags, strategies, task
from ps_train.parts.keras.fitting import plan_epochs
from tests.errors import raises


def test_where_a_tpu_is_looked_for(tmp_path):
    """The flag, the two variables, the devices; without any, an error that says so."""
    assert strategies.find_tpu("mine", {"TPU_NAME": "other"}) == "mine"
    assert strategies.find_tpu("", {"TPU_NAME": "other"}) == "other"
    assert strategies.find_tpu("", {"KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS": "grpc://a:8470"}) == "grpc://a:8470"
    with raises("no_tpu"):
        strategies.find_tpu("", {}, str(tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/accel0").touch()
    assert strategies.find_tpu("", {}, str(tmp_path)) == "local"


def test_a_tensor_made_before_the_strategy_is_one_line():
    """Issue: a traceback about virtual devices, or about collective operations."""
    with context.eager_mode():
        tf.constant(1.0)
        with raises("tensorflow_used_too_early"):
            strategies.make_strategy(
                flags.parse_keras_task(["--strategy=mirrored", "--num_virtual_devices=7"], {}), None)


@pytest.mark.parametrize(("argv", "code"), [
    (["--devices=gpu:99"], "no_such_device"),
    (["--devices=cpu:0,cpu:1", "--cross_device_ops=nccl"], "reduction_needs_gpus"),
])
def test_missing_devices_are_refused(argv, code):
    """TensorFlow would silently take others."""
    config = flags.parse_keras_task(["--strategy=mirrored", *argv], {})
    with raises(code, kind=ConfigError):
        names = ["/cpu:0", "/cpu:1"] if config.cross_device_ops == "nccl" else strategies._replica_devices(config)
        strategies._cross_device_ops(config, names)


def test_a_model_that_is_not_compiled_is_refused():
    """It has no optimizer."""
    import tf_keras  # noqa: PLC0415 (which may be missing)

    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    with raises("model_not_compiled"):
        checkpoints.build_model(types.SimpleNamespace(name="raw", build_model=lambda params: model), {})


# --- a server of parameter_server

@pytest.fixture
def chief():
    """A task that accepts connections until its socket, the second of the pair, is closed."""
    with socket.create_server(("localhost", 0)) as listener:
        yield Task("chief", 0, f"localhost:{listener.getsockname()[1]}"), listener


@pytest.mark.parametrize("verdict", [strategies.DONE, strategies.FAILED])
def test_a_server_serves_until_the_verdict(tmp_path, monkeypatch, chief, stop, verdict):
    """It is what the coordinator wrote into its folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / strategies._VERDICT).write_text(verdict)
    assert strategies._wait_for_verdict(chief[0], 5, stop) == verdict


def test_a_server_that_cannot_reach_its_coordinator_ends(tmp_path, monkeypatch, chief, stop):
    """After the time-out, naming it."""
    monkeypatch.chdir(tmp_path)
    chief[1].close()
    with raises("chief_unreachable") as caught:
        strategies._wait_for_verdict(chief[0], 0.3, stop)
    assert str(caught.value).startswith(str(chief[0]))


def test_a_server_stops_when_told_to(tmp_path, monkeypatch, chief, stop):
    """While its coordinator is there."""
    monkeypatch.chdir(tmp_path)
    stop.set()
    with raises("stopped"):
        strategies._wait_for_verdict(chief[0], 5, stop)


# --- the watchdog

def test_a_body_that_ends_gives_its_value_or_its_error():
    """As if it had been called."""
    assert strategies.run_watched(lambda: 5, strategies.Pulse(), str) == 5
    with pytest.raises(ZeroDivisionError):
        strategies.run_watched(lambda: 1 / 0, strategies.Pulse(), str)


def test_an_overdue_body_is_named():
    """Which tasks are missing is found out then, and not before."""
    pulse, never = strategies.Pulse(), threading.Event()
    pulse.expect("the other tasks", 0.05)
    with raises("timed_out") as caught:
        strategies.run_watched(lambda: never.wait(30), pulse, lambda: "worker:1 a:1")
    assert "0.05 s for the other tasks: worker:1 a:1" in str(caught.value)
    never.set()


def test_each_beat_renews_the_time(monkeypatch):
    """The time limit counts from the last beat."""
    now = [100.0]
    monkeypatch.setattr(strategies, "time", types.SimpleNamespace(monotonic=lambda: now[0]))
    pulse = strategies.Pulse()
    assert pulse.overdue() == ""
    pulse.expect("a step", 10)
    now[0] = 109.0
    pulse.beat()
    now[0] = 118.0
    assert pulse.overdue() == ""
    now[0] = 120.0
    assert pulse.overdue() == "waited 10 s for a step"


@pytest.mark.parametrize(("flag", "is_refused"), [
    ("--train_steps=70", True), ("--steps_per_epoch=20", True), ("--batch_size=50", True), ("--seed=3", True),
    ("--save_model_steps=9", True), ("--validation_epochs=0", True), ("--steps_per_execution=2", True),
    ("--log_steps=7", False), ("--learning_rate=0.5", False),
])
def test_workers_that_would_not_take_the_same_steps_are_refused(monkeypatch, flag, is_refused):
    """Issue: only their epochs were compared, so a loop ended in a traceback, and other batches in no error at all."""
    name = flag.partition("=")[0]
    common = [other for other in ("--train_steps=80", "--steps_per_epoch=40") if not other.startswith(name)]
    asked, strategy = [], types.SimpleNamespace(num_replicas_in_sync=2)

    def check(argv):
        config = flags.parse_keras_task(argv, {})
        cluster = types.SimpleNamespace(task=Task("worker", 1, "b:2"))
        plan = plan_epochs(config.train_steps, config.steps_per_epoch, 0)
        task._check_agreement(types.SimpleNamespace(config=config, cluster=cluster), strategy, plan)

    def as_if_all_differed(strategy, number):
        asked.append(number)
        return -1

    monkeypatch.setattr(task, "sum_over_replicas", as_if_all_differed)
    with raises("worker_flags_differ"):
        check(["--train_steps=80", "--steps_per_epoch=40"])
    calls = iter(asked)
    monkeypatch.setattr(task, "sum_over_replicas", lambda strategy, number: number + next(calls))
    if not is_refused:
        check([*common, flag])
        return
    with raises("worker_flags_differ") as caught:
        check([*common, flag])
    assert str(caught.value).startswith(f"{name}: the workers have different ones; worker:1 has {flag} and")
