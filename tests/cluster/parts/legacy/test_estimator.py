"""tf.estimator in one process: what the bridge makes work, what it replaces, and the folders that ps_train trains."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import threading
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster, Task
from ps_train.coordination.state import State
from ps_train.errors import ChiefFailedError, ClusterLostError
from ps_train.parts.legacy import estimator as bridge
from ps_train.parts.legacy import observer as observing
from ps_train.parts.legacy import source, strategies, strategy_ends
from ps_train.plugins import contracts
from ps_train.runtime.waits import Timeouts
from tests import clusters, processes
from tests.errors import raises
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)

FEATURES, LABELS = clusters.linear_data(40)
COLORS = np.where(FEATURES[:, 1] > 0, "red", "blue").astype(object)


@pytest.fixture(scope="module")
def api():
    """tf.estimator, as TensorFlow 1 knows it."""
    return bridge.install_estimator()


@pytest.fixture
def run_config(api, tmp_path, monkeypatch):
    """A function that returns a RunConfig, of a task of a cluster where one is named."""
    def make(folder="model", job=None, jobs=("ps", "chief"), **others):
        tf_config = {"cluster": {name: ["localhost:1"] for name in jobs}, "task": {"type": job, "index": 0}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config) if job else "{}")
        return api.RunConfig(model_dir=str(tmp_path / folder), tf_random_seed=1,
                             **{"save_checkpoints_steps": 10, "save_summary_steps": 100, **others})

    return make


@pytest.mark.parametrize(("job", "index", "workers", "task"), [
    ("worker", 0, ["a:1", "b:1"], ("chief", 0, True)), ("chief", 0, ["a:1", "b:1"], ("chief", 0, True)),
    ("worker", 1, ["a:1", "b:1"], ("worker", 1, False)), ("worker", 0, ["b:1"], ("worker", 0, False))])
def test_worker_0_is_the_chief_of_an_estimator_if_it_has_the_address_of_the_chief(
        api, monkeypatch, job, index, workers, task):
    """Issue: its task waited for the chief, which it was itself."""
    from ps_train.parts.legacy.names import run_config  # noqa: PLC0415 (it needs the Estimator)

    name = "_init_distributed_setting_from_environment_var"
    monkeypatch.setattr(api.RunConfig, name, getattr(api.RunConfig, name))
    run_config.know_chief_as_worker_0()
    cluster = {"ps": ["p:1"], "chief": ["a:1"], "worker": workers}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}))
    config = api.RunConfig()
    assert (config.task_type, config.task_id, config.is_chief) == task


def columns():
    """Returns a numeric column and an embedding of words."""
    words = tf.feature_column.categorical_column_with_vocabulary_list("color", ["red", "blue"])
    return tf.feature_column.numeric_column("x", [4]), words, tf.feature_column.embedding_column(words, 2)


def batches(epochs=None):
    """Returns the examples in their order, in batches of 8."""
    labels = (LABELS > 0).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices(({"x": FEATURES, "color": COLORS}, labels)).repeat(epochs).batch(8)


def serving_input(api):
    """Returns the function that an export needs."""
    def receive():
        features = {"x": tf.placeholder(tf.float32, [None, 4]), "color": tf.placeholder(tf.string, [None])}
        return api.export.ServingInputReceiver(features, features)

    return receive


def model_fn(features, labels, mode, params, config):
    """A classifier as the guides of Estimator write it."""
    api = bridge.install_estimator()
    numeric, _, embedded = columns()
    hidden = tf.layers.dense(tf.feature_column.input_layer(features, [numeric, embedded]), 4, tf.nn.relu)
    hidden = tf.layers.batch_normalization(hidden, momentum=0.5, training=mode == api.ModeKeys.TRAIN)
    logits = tf.layers.dense(hidden, 2)
    predictions = {"class": tf.argmax(logits, 1)}
    if mode == api.ModeKeys.PREDICT:
        return api.EstimatorSpec(mode, predictions=predictions)
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdamOptimizer(params["rate"]).minimize(loss, tf.train.get_global_step())
    return api.EstimatorSpec(mode, predictions, loss, train_op,
                             {"accuracy": tf.metrics.accuracy(labels, predictions["class"])})


def test_a_model_trains_evaluates_predicts_and_is_exported(api, run_config, tmp_path):
    """Feature columns, layers, hooks, exporters and early stopping in one train_and_evaluate."""
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config())
    os.makedirs(trainer.eval_dir())
    early = api.experimental.stop_if_no_decrease_hook(trainer, "loss", 1000, run_every_secs=None, run_every_steps=10)
    exporters = [kind(kind.__name__, serving_input(api))
                 for kind in (api.FinalExporter, api.LatestExporter, api.BestExporter)]
    metrics, _ = api.train_and_evaluate(
        trainer, api.TrainSpec(batches, 40, [early]),
        api.EvalSpec(lambda: batches(1), steps=None, exporters=exporters, throttle_secs=0))
    assert metrics["global_step"] == 40 and metrics["loss"] < np.log(2)  # that of a guess
    assert {name: len(os.listdir(tmp_path / "model/export" / name)) > 0
            for name in ("FinalExporter", "LatestExporter", "BestExporter")} == dict.fromkeys(
                ("FinalExporter", "LatestExporter", "BestExporter"), True)
    assert next(trainer.predict(lambda: batches(1)))["class"] in (0, 1)
    warm = api.Estimator(model_fn, params={"rate": 0.0}, config=run_config("warm"),
                         warm_start_from=api.WarmStartSettings(trainer.model_dir, vars_to_warm_start="dense.*"))
    warm.train(batches, steps=1)
    np.testing.assert_array_equal(warm.get_variable_value("dense/kernel"), trainer.get_variable_value("dense/kernel"))


def test_a_canned_model_of_both_kinds_trains(api, run_config):
    """DNNLinearCombinedClassifier has the parts of DNNClassifier and of LinearClassifier."""
    numeric, words, embedded = columns()
    canned = api.DNNLinearCombinedClassifier(
        linear_feature_columns=[words], dnn_feature_columns=[numeric, embedded], dnn_hidden_units=[8],
        config=run_config())
    losses = []
    for until in (1, 40):
        canned.train(batches, max_steps=until)
        losses.append(canned.evaluate(lambda: batches(1))["loss"])
    assert losses[1] < losses[0]


def test_the_names_are_where_code_looks_for_them(api):
    """Version 1 in compat.v1, version 2 in TensorFlow itself, both importable."""
    import tensorflow as tf2  # noqa: PLC0415 (after `install`)
    import tensorflow.compat.v1.estimator as importable  # noqa: PLC0415

    assert importable.Estimator is api.Estimator is tf.estimator.Estimator is tf2.compat.v1.estimator.Estimator
    assert issubclass(tf2.estimator.Estimator, api.Estimator) and tf2.estimator.Estimator is not api.Estimator


@pytest.mark.skipif(tf.__version__ < "2.16", reason="TensorFlow brings its Estimator")
def test_a_missing_package_is_named_in_one_line(monkeypatch):
    """With the command that installs it."""
    import tensorflow as tf2  # noqa: PLC0415

    monkeypatch.setattr(bridge.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delattr(tf2, "estimator", raising=False)
    with raises("package_missing") as caught:
        bridge.install_estimator()
    assert "pip install 'ps_train[estimator]'" in str(caught.value) and "\n" not in str(caught.value)


@pytest.fixture
def restored(api):
    """Takes back what `replace` has replaced."""
    from tensorflow.python.distribute import (  # noqa: PLC0415 (no public names)
        collective_all_reduce_strategy,
        distribute_coordinator,
        mirrored_strategy,
    )
    from tensorflow_estimator.python.estimator import estimator, training  # noqa: PLC0415

    places = [(training, "server_lib"), (training._TrainingExecutor, "run_evaluator"), (estimator, "training"),
              (estimator.Estimator, "train"),
              (distribute_coordinator, "server_lib"), (strategies._State, "timeouts"),
              (collective_all_reduce_strategy.CollectiveAllReduceExtended, "_initialize_strategy"),
              (mirrored_strategy.MirroredExtended, "_initialize_strategy")]
    before = [(place, name, getattr(place, name)) for place, name in places]
    yield
    for place, name, value in before:
        setattr(place, name, value)


def test_servers_and_sessions_are_the_ones_that_were_given(api, run_config, restored):
    """A ps makes the server and joins it; a chief makes the server and trains in the session."""
    calls = []

    class Server:
        def __init__(self, cluster, job_name, task_index, **others):
            calls.append((job_name, task_index, sorted(cluster.as_dict())))

        def start(self):
            pass

        def join(self):
            calls.append("join")

    def session(master, **options):
        calls.append((master, options["is_chief"]))
        return tf.train.MonitoredTrainingSession("", **options)

    bridge.replace(Server, session)
    for job in ("ps", "chief"):
        trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(
            job=job, session_config=tf.ConfigProto(), device_fn=lambda op: ""))
        api.train_and_evaluate(trainer, api.TrainSpec(batches, 2), api.EvalSpec(batches))
    assert calls == [("ps", 0, ["chief", "ps"]), "join", ("chief", 0, ["chief", "ps"]), ("grpc://localhost:1", True)]


@pytest.mark.parametrize(("address", "ps", "num_servers"), [
    ("localhost:1", "localhost:1", 1), ("localhost:2", "localhost:1", 3), ("localhost:1", "localhost:3", 3)])
def test_the_trainings_of_a_script_have_one_server(api, run_config, restored, address, ps, num_servers):
    """Issue: the second `train_and_evaluate` found its port in use. A server of the script's own may be another's.

    Or of another cluster: TF_CONFIG has other ps by now.
    """
    servers = []

    def make(cluster, job_name, task_index, **others):
        task = Task(job_name, task_index, address)
        servers.append(types.SimpleNamespace(
            cluster=types.SimpleNamespace(task=task, ps=[Task("ps", 0, ps)]), start=lambda: None))
        return servers[-1]

    bridge.replace(make, lambda master, **options: tf.train.MonitoredTrainingSession("", **options),
                   find_server=lambda: servers[-1] if servers else None)
    config = {"job": "chief", "session_config": tf.ConfigProto(), "device_fn": lambda op: ""}
    for folder in ("alone", "first", "second"):
        trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(folder, **config))
        if folder == "alone":
            trainer.train(batches, max_steps=2)
        else:
            api.train_and_evaluate(trainer, api.TrainSpec(batches, 2), api.EvalSpec(batches))
        assert tf.train.latest_checkpoint(trainer.model_dir).endswith("model.ckpt-2")
    assert len(servers) == num_servers


def test_the_evaluator_ends_with_training_and_evaluates_the_last_checkpoint(api, run_config, tmp_path, restored):
    """Training ends before max_steps, while the evaluator waits for its next turn; the final export is made."""
    trained = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config())
    trained.train(batches, steps=4)
    calls = []

    def is_over(has_max_steps):
        assert not has_max_steps
        calls.append(len(calls))
        if len(calls) == 4:  # it waits
            trained.train(batches, steps=3)
        return len(calls) >= 4

    bridge.replace(find_end=lambda config: is_over)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    evaluated = []
    hook = type("Hook", (tf.train.SessionRunHook,), {"end": lambda self, session: evaluated.append(
        session.run(tf.train.get_global_step(session.graph)))})()
    exporter = api.FinalExporter("last", serving_input(api))
    api.train_and_evaluate(trainer, api.TrainSpec(batches, 1000), api.EvalSpec(
        lambda: batches(1), hooks=[hook], exporters=exporter, start_delay_secs=600, throttle_secs=600))
    assert evaluated == [7]
    assert len(os.listdir(tmp_path / "model/export/last")) == 1


def test_an_evaluator_without_a_checkpoint_ends_too(api, run_config, restored):
    """Training that died before it saved leaves nothing to evaluate."""
    bridge.replace(find_end=lambda config: lambda has_max_steps: True)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    api.train_and_evaluate(trainer, api.TrainSpec(batches, 10), api.EvalSpec(batches, throttle_secs=600))


def never_there(has_max_steps):
    """Stands for an observer of a ps 0 that did not answer within the start time-out."""
    raise ClusterLostError("timed_out", "waited 1 s for ps:0")


def test_an_evaluator_that_starts_after_training_evaluates_and_exports(api, run_config, tmp_path, restored):
    """Issue: it ended with 138, as no task answers any more."""
    api.Estimator(model_fn, params={"rate": 0.05}, config=run_config()).train(batches, steps=4)
    bridge.replace(find_end=lambda config: never_there)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    api.train_and_evaluate(trainer, api.TrainSpec(batches, 1000), api.EvalSpec(
        lambda: batches(1), exporters=api.FinalExporter("last", serving_input(api)), start_delay_secs=600,
        throttle_secs=600))
    assert len(os.listdir(tmp_path / "model/export/last")) == 1


def test_an_evaluator_ends_with_the_ps_once_it_has_evaluated_max_steps(api, run_config, monkeypatch, restored):
    """It waited for the heartbeat time-out, as if the ps had been killed and came back."""
    api.Estimator(model_fn, params={"rate": 0.05}, config=run_config()).train(batches, steps=4)
    monkeypatch.setattr(observing, "_ASK_PERIOD_SECS", 0.0)
    ps = f"localhost:{processes.free_ports(1)[0]}"
    cluster = Cluster("evaluator", 0, {"ps": {0: ps}, "chief": {0: "localhost:1"}})
    observer = observing.Observer(cluster, Timeouts(start_secs=600, heartbeat_secs=600))
    bridge.replace(find_end=lambda config: observer.is_over)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    api.train_and_evaluate(trainer, api.TrainSpec(batches, 4), api.EvalSpec(
        lambda: batches(1), start_delay_secs=0, throttle_secs=0))
    assert observer.is_over(has_max_steps=True)


def test_an_observer_closes_its_session_once_training_is_over(monkeypatch):
    """Issue: TensorFlow closed it when it was deleted, and waited for a ps that had ended, so the evaluator hung."""
    closed = []
    snapshots = iter([types.SimpleNamespace(state=State.RUNNING, finished=[is_over]) for is_over in (False, True)])
    board = types.SimpleNamespace(snapshot=lambda: next(snapshots), close=lambda: closed.append(True))
    monkeypatch.setattr(observing, "_ASK_PERIOD_SECS", 0.0)
    monkeypatch.setattr(observing.reachability, "accepts", lambda address: True)
    monkeypatch.setattr(observing.blackboard, "for_client", lambda cluster, secs: board)
    observer = observing.Observer(Cluster("evaluator", 0, {"ps": {0: "a:1"}, "chief": {0: "b:1"}}), Timeouts())
    answers = [(observer.is_over(has_max_steps=False), len(closed)) for _ in range(3)]
    assert answers == [(False, 0), (True, 1), (True, 1)]


@pytest.mark.parametrize("others", [[("worker:1",), ("chief:1",)], [("chief:1",), ("worker:1",)]])
def test_an_evaluator_waits_for_a_lost_ps_as_long_as_a_worker_does(monkeypatch, others):
    """Issue: it made the final export in the midst of training, and ended with 0, --beat_timeout_secs after a kill.

    Also when the chief was killed with the ps, as on one machine, and another worker waits for both.
    """
    answering, secs = {"ps:1", "chief:1", "worker:1"}, [0.0]
    board = types.SimpleNamespace(
        snapshot=lambda: types.SimpleNamespace(state=State.RUNNING, finished=[False]), close=lambda: None)
    monkeypatch.setattr(observing.reachability, "accepts", lambda address: address in answering)
    monkeypatch.setattr(observing.blackboard, "for_client", lambda cluster, secs: board)
    monkeypatch.setattr(observing, "time", types.SimpleNamespace(monotonic=lambda: secs[0]))
    timeouts = Timeouts()
    cluster = Cluster("evaluator", 0, {"ps": {0: "ps:1"}, "chief": {0: "chief:1"}, "worker": {0: "worker:1"}})
    observer = observing.Observer(cluster, timeouts)
    answers = []
    for lost in ((), ("ps:1",), *others):
        secs[0] += 2 * timeouts.heartbeat_secs
        answering -= {*lost}
        answers.append(observer.is_over(has_max_steps=False))
    assert answers == [False, False, False, True]


def test_an_evaluator_asks_the_ps_of_the_launcher_whatever_tf_config_its_script_writes(monkeypatch):
    """Issue: no task answered at the addresses in the script, and the evaluator ended with 0 in the midst of training.

    The launcher's TF_CONFIG has its addresses, and the evaluator.
    """
    launched = {"ps": ["localhost:7"], "chief": ["localhost:8"], "evaluator": ["localhost:9"]}
    monkeypatch.setenv(source.CLUSTER_VARIABLE, json.dumps(launched))
    for cluster in ({"ps": ["ps:1"], "chief": ["chief:1"]}, {"ps": {"0": "ps:1"}, "chief": ["chief:1"]}, launched):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}))
        asked = observing.observer_from_environment(Timeouts())._cluster
        assert (asked.ps[0].address, asked.chief.address, asked.job) == ("localhost:7", "localhost:8", "evaluator")
        config = types.SimpleNamespace(train_distribute="any", model_dir="any")
        assert strategy_ends.chief_watch(config, Timeouts())._chief.address == "localhost:8"
    with raises("task_count_mismatch"):
        monkeypatch.setenv("TF_CONFIG", json.dumps({
            "cluster": {"ps": ["ps:1", "ps:2"], "chief": ["chief:1"]}, "task": {"type": "evaluator", "index": 0}}))
        observing.observer_from_environment(Timeouts())


def test_an_evaluator_ends_without_an_export_if_the_chief_has_failed(api, run_config, monkeypatch, tmp_path, restored):
    """As the ps and the workers do, with 138: the training is not complete."""
    api.Estimator(model_fn, params={"rate": 0.05}, config=run_config()).train(batches, steps=4)
    closed = []
    board = types.SimpleNamespace(snapshot=lambda: types.SimpleNamespace(state=State.FAILED, finished=[False]),
                                  close=lambda: closed.append(True))
    monkeypatch.setattr(observing.reachability, "accepts", lambda address: True)
    monkeypatch.setattr(observing.blackboard, "for_client", lambda cluster, secs: board)
    monkeypatch.setattr(observing, "_ASK_PERIOD_SECS", 0.0)
    observer = observing.Observer(Cluster("evaluator", 0, {"ps": {0: "a:1"}, "chief": {0: "b:1"}}), Timeouts())
    bridge.replace(find_end=lambda config: observer.is_over)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    with raises("chief_failed", kind=ChiefFailedError):
        api.train_and_evaluate(trainer, api.TrainSpec(batches, 1000), api.EvalSpec(
            lambda: batches(1), exporters=api.FinalExporter("last", serving_input(api)), throttle_secs=600))
    assert closed and not (tmp_path / "model/export").exists()


def test_a_failure_of_the_chief_is_noticed_during_an_evaluation(api, run_config, tmp_path, restored):
    """The ps end a few seconds after it: later, the evaluator would take their silence for the end of training."""
    api.Estimator(model_fn, params={"rate": 0.05}, config=run_config()).train(batches, steps=4)
    evaluates, has_failed = threading.Event(), threading.Event()

    def is_over(has_max_steps):
        if has_failed.is_set():
            raise ClusterLostError("timed_out", "ps:0 has ended")
        if evaluates.is_set():
            has_failed.set()
            raise ChiefFailedError
        return False

    def held_out():
        evaluates.set()
        assert has_failed.wait(30.0)
        return batches(1)

    bridge.replace(find_end=lambda config: is_over)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    with raises("chief_failed", kind=ChiefFailedError):
        api.train_and_evaluate(trainer, api.TrainSpec(batches, 1000), api.EvalSpec(
            held_out, exporters=api.FinalExporter("last", serving_input(api)), start_delay_secs=0, throttle_secs=0))
    assert not (tmp_path / "model/export").exists()


def test_an_evaluator_without_a_cluster_or_a_checkpoint_is_lost(api, run_config, restored):
    """Training may not have begun."""
    bridge.replace(find_end=lambda config: never_there)
    trainer = api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(job="evaluator"))
    with raises("timed_out", kind=ClusterLostError):
        api.train_and_evaluate(trainer, api.TrainSpec(batches, 10), api.EvalSpec(batches, throttle_secs=600))


def test_a_folder_of_ps_train_goes_on_under_an_estimator_and_back(api, run_config, tmp_path, start_servers):
    """4 steps each of ps_train, Estimator and ps_train end where 12 of Estimator do: Adam's moments are carried on."""
    def input_fn(mode="train", params=None, shard=(0, 1)):
        return batches()

    def train(steps):
        model = contracts.Model("adam", model_fn, {}, takes_config=True)
        dataset = contracts.Dataset("examples", input_fn, lambda params: None, {})
        clusters.train_together(start_servers(1, 1), tmp_path / "mixed", steps, 1, model=model, dataset=dataset,
                                params={"rate": 0.05})

    def estimator(folder):
        return api.Estimator(model_fn, params={"rate": 0.05}, config=run_config(folder))

    # Each time, the data begin again; so do those of the Estimator that is compared.
    first = estimator("alone")
    first.train(batches, max_steps=1)
    shutil.copytree(tmp_path / "alone", tmp_path / "mixed")
    for until in (4, 8, 12):
        estimator("alone").train(batches, max_steps=until)
        train(until) if until != 8 else estimator("mixed").train(batches, max_steps=until)
    mixed, alone = (clusters.read_checkpoint(tmp_path / name) for name in ("mixed", "alone"))
    assert mixed.keys() == alone.keys() and any(name.endswith("Adam_1") for name in mixed)
    for name, value in alone.items():
        np.testing.assert_allclose(mixed[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["list", "dictionary"])
def test_a_keras_model_of_floats_takes_features_of_whole_numbers(api, tmp_path, kind):
    """As until 1.13: pixels are uint8. An embedding's ids stay whole numbers."""
    bridge.replace()
    keras = tf.keras
    pixels, ids = keras.Input([4], name="pixels"), keras.Input([1], dtype="int32", name="ids")
    joined = keras.layers.concatenate([pixels, keras.layers.Flatten()(keras.layers.Embedding(3, 2)(ids))])
    model = keras.Model([pixels, ids], keras.layers.Dense(1)(joined))
    model.compile(loss="mse", optimizer="sgd")
    estimator = keras.estimator.model_to_estimator(model, model_dir=str(tmp_path))
    values = {"pixels": np.full([8, 4], 200, np.uint8), "ids": np.ones([8, 1], np.int32)}

    def input_fn():
        features = values if kind == "dictionary" else tuple(values.values())
        return tf.data.Dataset.from_tensors((features, np.ones([8, 1], np.float32))).repeat(3)
    estimator.train(input_fn)
    assert estimator.get_variable_value("global_step") == 3
