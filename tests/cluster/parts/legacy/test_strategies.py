"""RunConfigs with `tf.distribute` strategies, what an input_fn gets, and who notices that a task is gone."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import types

import numpy as np
import pytest

from ps_train.cluster.spec import Cluster, Task
from ps_train.errors import ChiefFailedError, ClusterLostError
from ps_train.parts.legacy import estimator as bridge
from ps_train.parts.legacy import source, strategies, strategy_ends
from ps_train.parts.legacy.classic import ending
from ps_train.runtime.waits import Timeouts
from tests import processes
from tests.errors import raises
from tests.tensorflow_mode import tf

if importlib.util.find_spec("tensorflow_estimator") is None:
    pytest.skip("tensorflow-estimator is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def api():
    """tf.estimator, as TensorFlow 1 knows it."""
    return bridge.install_estimator()


def strategy(name="ParameterServerStrategy"):
    """Returns something that has the name of a strategy: they are known by it."""
    return type(f"{name}V1", (), {})()


def both(train, evaluate, remote_cluster=None):
    """Returns what `experimental_distribute` takes."""
    return types.SimpleNamespace(train_distribute=train, eval_distribute=evaluate, remote_cluster=remote_cluster)


def estimator_training():
    """Returns the module whose functions the Estimator calls."""
    return importlib.import_module("tensorflow.python.distribute.estimator_training")


def set_task(monkeypatch, job=None, index=0, workers=2, **jobs):
    """Sets TF_CONFIG; without a job, to that of no cluster."""
    cluster = {**{name: [f"{name}:{number + 1}" for number in range(count)] for name, count in jobs.items()},
               "worker": [f"w:{number + 1}" for number in range(workers)]}
    task = {"cluster": cluster, "task": {"type": job, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task if job else {}))


def test_a_server_of_tensorflow_2_stays_until_its_coordinator_has_ended_well(monkeypatch):
    """A coordinator that was lost may come back: only its mark ends the server, and only once it is gone."""
    monkeypatch.setattr(strategy_ends, "_POLL_SECS", 0.001)
    monkeypatch.setattr(ending, "on_stop", lambda stop: None)
    answers, marks = iter([False, True, True, False, False]), iter([False, False, True])
    monkeypatch.setattr(strategy_ends.reachability, "accepts", lambda address: next(answers))
    monkeypatch.setattr(strategy_ends.clients, "has_mark", lambda task, name: next(marks))
    cluster = tf.train.ClusterSpec({"ps": ["p:1"], "worker": ["w:1"], "chief": ["c:1"]})
    with pytest.raises(SystemExit) as ended:
        strategy_ends.join_server(tf.train.ServerDef(cluster=cluster.as_cluster_def(), job_name="ps", task_index=0))
    assert (ended.value.code, [*answers], [*marks]) == (0, [], [])


@pytest.mark.parametrize("given", [
    {"train_distribute": strategy()}, {"train_distribute": strategy(), "eval_distribute": strategy()},
    {"experimental_distribute": both(strategy(), None)}])
@pytest.mark.parametrize(("jobs", "job", "index", "task"), [
    ({"ps": 1}, "worker", 0, ("worker", 0, True, 0)), ({"ps": 1}, "worker", 1, ("worker", 1, False, 1)),
    ({"ps": 1}, "ps", 0, ("ps", 0, False, 2)), ({"ps": 1, "chief": 1}, "chief", 0, ("chief", 0, True, 0)),
    ({"ps": 1, "master": 1}, "master", 0, ("master", 0, True, 0))])
def test_parameter_server_strategy_is_how_an_estimator_trains_anyway(api, monkeypatch, given, jobs, job, index, task):
    """As without a strategy; without a chief, worker 0 is it."""
    set_task(monkeypatch, job, index, **jobs)
    config = api.RunConfig(**given)
    assert (config.task_type, config.task_id, config.is_chief, config.global_id_in_cluster) == task
    assert config.train_distribute is None and config.eval_distribute is None and config.num_ps_replicas == 1
    assert config.master.startswith("grpc://") and config.session_config.device_filters[0] == "/job:ps"
    assert config.evaluation_master == "" and not strategies.should_run_distribute_coordinator(config)


@pytest.mark.parametrize("name", ["ParameterServerStrategy", "MultiWorkerMirroredStrategy"])
def test_an_evaluator_needs_no_chief_and_no_coordinator(api, monkeypatch, name):
    """Worker 0 is the chief, as for the workers."""
    set_task(monkeypatch, "evaluator", ps=1)
    config = api.RunConfig(train_distribute=strategy(name))
    assert (config.task_type, config.is_chief, config.num_worker_replicas, config.master) == ("evaluator", False, 0, "")
    assert not strategies.should_run_distribute_coordinator(config)


@pytest.mark.parametrize("given", [
    lambda: {"train_distribute": strategy("MirroredStrategy")},
    lambda: {"experimental_distribute": both(strategy("MirroredStrategy"), None)}])
@pytest.mark.parametrize(("jobs", "job", "index", "expected"), [
    ({}, "worker", 1, ("worker", 1, 2, 1, {"worker"})), ({"ps": 1}, "worker", 1, ("worker", 1, 2, 1, {"worker"})),
    ({"chief": 1}, "worker", 1, ("worker", 1, 3, 2, {"chief", "worker"})),
    ({"master": 1}, "master", 0, ("chief", 0, 3, 0, {"chief", "worker"}))])
def test_a_task_under_another_strategy_knows_its_place(api, monkeypatch, given, jobs, job, index, expected):
    """The coordinator trains it, in a cluster without ps."""
    set_task(monkeypatch, job, index, **jobs)
    config = api.RunConfig(**given())
    assert (config.task_type, config.task_id, config.num_worker_replicas, config.global_id_in_cluster,
            set(config.cluster_spec.jobs)) == expected
    assert config.train_distribute is not None and not config.session_config
    assert strategies.should_run_distribute_coordinator(config)


def test_a_task_under_a_strategy_has_the_addresses_of_the_launcher(api, monkeypatch):
    """Its server listens there, and so the others look for it there, whatever TF_CONFIG the script writes."""
    monkeypatch.setenv(source.CLUSTER_VARIABLE, json.dumps({"ps": ["l:1"], "worker": ["l:2", "l:3"]}))
    set_task(monkeypatch, "worker", 1, ps=1)
    config = api.RunConfig(train_distribute=strategy("MirroredStrategy"))
    assert config.cluster_spec.as_dict() == {"worker": ["l:2", "l:3"]}
    assert config.listed_cluster.ps == [Task("ps", 0, "l:1")]


def test_a_strategy_without_a_cluster_stays(api, monkeypatch):
    """TensorFlow's own strategy trains and evaluates in this process."""
    set_task(monkeypatch)
    mirrored = strategy("MirroredStrategy")
    config = api.RunConfig(train_distribute=strategy(), eval_distribute=mirrored)
    assert config.train_distribute is None and config.eval_distribute is mirrored and config.is_chief
    config = api.RunConfig(train_distribute=mirrored)
    assert config.train_distribute is mirrored and not strategies.should_run_distribute_coordinator(config)


@pytest.mark.parametrize(("given", "code"), [
    ({"train_distribute": strategy(), "experimental_distribute": both(strategy(), None)}, "strategy_given_twice"),
    ({"eval_distribute": strategy(), "experimental_distribute": both(None, strategy())}, "strategy_given_twice"),
    ({"experimental_distribute": both(strategy(), None, {"worker": ["a:1"]})}, "strategy_remote_cluster")])
def test_what_no_task_can_do_is_refused(api, monkeypatch, given, code):
    """Two strategies for one thing, and a client outside the cluster."""
    if code == "strategy_remote_cluster" and hasattr(estimator_training().init_run_config, "__wrapped__"):
        pytest.skip("this TensorFlow can do it")
    set_task(monkeypatch)
    with raises(code):
        api.RunConfig(**given)


def test_a_client_outside_the_cluster_is_left_to_tensorflow_where_it_can_do_that():
    """TensorFlow 2.15 can; what is offered again is not wrapped again."""
    module = types.SimpleNamespace(estimator_train=lambda estimator, *args: ("TensorFlow's", *args))
    strategies.offer_functions(module)
    offered = module.estimator_train
    strategies.offer_functions(module)
    client = types.SimpleNamespace(_config=types.SimpleNamespace(
        _experimental_distribute=both(strategy(), None, {"worker": ["a:1"]})))
    assert module.estimator_train is offered and offered(client, 1, 2) == ("TensorFlow's", 1, 2)
    assert module.should_run_distribute_coordinator is strategies.should_run_distribute_coordinator
    assert not strategies._unless_client(lambda config: False, lambda config: True)(types.SimpleNamespace())


def test_a_second_estimator_with_other_options_is_refused(api, monkeypatch):
    """Issue: TensorFlow raised an AssertionError without a word."""
    set_task(monkeypatch, "worker", 0)
    mirrored = tf.distribute.MirroredStrategy(["/cpu:0"])
    started = types.SimpleNamespace()
    monkeypatch.setattr(strategies.distribute_coordinator, "_thread_local", started)
    monkeypatch.setattr(type(mirrored.extended), "_configure", lambda *args: None)
    first, second = (api.RunConfig(train_distribute=mirrored, session_config=tf.ConfigProto(
        intra_op_parallelism_threads=number)) for number in (1, 2))
    strategies._refuse_other_server(first)
    started.server, started.session_config_str = object(), repr(first.session_config)
    strategies._refuse_other_server(first)
    with raises("strategy_differs"):
        strategies._refuse_other_server(second)


def test_parameter_server_strategy_without_a_ps_is_refused(api, monkeypatch):
    """Issue: the workers waited for variables that nobody had."""
    set_task(monkeypatch, "worker", 0)
    with raises("strategy_without_ps"):
        api.RunConfig(train_distribute=strategy())


@pytest.mark.parametrize(("job", "index", "jobs", "share"), [
    (None, 0, {}, (1, 0)), ("worker", 1, {"ps": 1}, (2, 1)), ("worker", 1, {"ps": 1, "chief": 1}, (3, 2))])
def test_an_input_fn_gets_its_share_where_parameter_server_strategy_was(api, monkeypatch, job, index, jobs, share):
    """Issue: it got None, so that each worker read everything; one that asks for nothing is called without."""
    set_task(monkeypatch, job, index, **jobs)
    trainer = api.Estimator(lambda features, labels, mode: None, config=api.RunConfig(train_distribute=strategy()))
    context = trainer._call_input_fn(lambda input_context: input_context, "train")
    assert (context.num_input_pipelines, context.input_pipeline_id) == share
    assert context.get_per_replica_batch_size(8) == 8
    assert trainer._call_input_fn(lambda: "all", "train") == "all"
    assert trainer._call_input_fn(lambda input_context=None: input_context, "eval") is None


def test_an_input_fn_may_return_a_function_where_parameter_server_strategy_was(api, monkeypatch):
    """As under a strategy of TensorFlow 1.15: `input_fn=lambda: numpy_input_fn(...)`."""
    set_task(monkeypatch, "worker", 1, ps=1)
    trainer = api.Estimator(lambda features, labels, mode: None, config=api.RunConfig(train_distribute=strategy()))
    assert trainer._call_input_fn(lambda: lambda: "batch", "train") == "batch"
    assert callable(trainer._call_input_fn(lambda: lambda: "batch", "eval"))


@pytest.mark.parametrize("name", ["OneDeviceStrategy", "MirroredStrategy", "ParameterServerStrategy", None])
def test_one_process_trains_the_same_under_each_strategy(api, monkeypatch, tmp_path, name):
    """Three steps of gradient descent, as numpy does them; its own evaluation, too."""
    set_task(monkeypatch)
    made = {"OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("/cpu:0"),
            "MirroredStrategy": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]),
            "ParameterServerStrategy": strategy, None: lambda: None}[name]()
    points = np.arange(1, 5, dtype=np.float32).reshape(4, 1)

    def input_fn():
        return tf.data.Dataset.from_tensor_slices((points, 3 * points)).repeat().batch(4)

    def model_fn(features, labels, mode):
        weight = tf.get_variable("weight", [1, 1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(features, weight) - labels))
        train_op = tf.train.GradientDescentOptimizer(0.01).minimize(loss, tf.train.get_global_step())
        return api.EstimatorSpec(mode, loss=loss, train_op=train_op)

    trainer = api.Estimator(model_fn, str(tmp_path), api.RunConfig(train_distribute=made, eval_distribute=made))
    trainer.train(input_fn, max_steps=3)
    weight = 3 - 3 * (1 - 0.02 * np.mean(points ** 2)) ** 3
    np.testing.assert_allclose(trainer.get_variable_value("weight"), [[weight]], rtol=1e-5)
    metrics = trainer.evaluate(input_fn, steps=1)
    np.testing.assert_allclose(metrics["loss"], np.mean((weight * points - 3 * points) ** 2), rtol=1e-5)
    assert metrics["global_step"] == 3


class EndedError(Exception):
    """Stands for the end of the process."""


@pytest.fixture
def world(monkeypatch):
    """Addresses that answer, and a clock."""
    world = types.SimpleNamespace(answering={"w:0", "w:1"}, secs=0.0)

    def end(error):
        raise EndedError from error

    monkeypatch.setattr(strategies.reachability, "accepts", lambda address: address in world.answering)
    monkeypatch.setattr(strategies, "_refuses", lambda address: address not in world.answering)
    monkeypatch.setattr(strategies.reachability, "wait_for_tasks", lambda *args: None)
    monkeypatch.setattr(strategies.threads, "repeating", lambda *args, **kwargs: contextlib.nullcontext())
    for module in (strategies, strategy_ends):
        monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: world.secs))
    monkeypatch.setattr(strategies.ending, "end_process", end)
    return world


CLUSTER = Cluster("worker", 0, {"worker": {0: "w:0", 1: "w:1"}})
TIMEOUTS = Timeouts(start_secs=100, step_secs=50, heartbeat_secs=10)


@pytest.fixture
def watch(world):
    """That of worker 0, whose session was created at 0 s."""
    with contextlib.ExitStack() as stack:
        watch = strategies.PeerWatch(CLUSTER, TIMEOUTS, stack, is_collective=False)
        watch.begin()
        watch.after_create_session(None, None)
        yield watch


def assert_ends(watch, code, named="worker:1"):
    """The process ends with an error that names a task."""
    with pytest.raises(EndedError) as caught:
        watch._check()
    assert caught.value.__cause__.code == code and named in str(caught.value.__cause__)


@pytest.mark.parametrize(("calls", "bound_secs"), [
    (["before_run"], 10), (["before_run", "after_run"], 100), (["before_run", "end"], 100)])
def test_a_worker_gives_up_a_lost_one_sooner_in_a_step(world, watch, calls, bound_secs):
    """Between steps it may save for long, and the other may have ended well; at the end of the input, too."""
    for name in calls:
        getattr(watch, name)(*[None] * {"before_run": 1, "after_run": 2, "end": 1}[name])
    world.answering = {"w:0"}
    world.secs = 40.0  # as after SIGSTOP
    watch._check()
    world.secs += min(bound_secs, 10)
    watch._check()
    world.secs = 40.0 + bound_secs
    watch._check()
    world.secs += 1
    assert_ends(watch, "task_lost")


def test_losses_of_different_workers_do_not_add_up(world):
    """The first one is back after 6 s, when the second one has been gone for 5 s."""
    world.answering |= {"w:2"}
    with contextlib.ExitStack() as stack:
        cluster = Cluster("worker", 0, {"worker": {0: "w:0", 1: "w:1", 2: "w:2"}})
        watch = strategies.PeerWatch(cluster, TIMEOUTS, stack, is_collective=False)
        watch.begin()
        for secs, answering in [(0, {"w:2"}), (6, set()), (7, {"w:1"}), (12, {"w:1"}), (16, {"w:1"})]:
            world.secs, world.answering = secs, answering
            watch._check()
        world.secs = 17.0
        assert_ends(watch, "task_lost", "worker:2")


def test_a_worker_waits_for_a_session_for_a_bounded_time(world):
    """The variables of workers whose code differs wait for each other, and all answer."""
    with contextlib.ExitStack() as stack:
        watch = strategies.PeerWatch(CLUSTER, TIMEOUTS, stack, is_collective=False)
        watch.begin()
        world.secs = 100.0
        watch._check()
        world.secs = 101.0
        assert_ends(watch, "timed_out")


def test_a_step_has_a_bound_also_while_the_others_answer(world, watch):
    """Issue: one that was restarted or suspended kept the others in it for ever; a new session begins anew."""
    watch.before_run(None)
    world.secs = 50.0
    watch._check()
    watch.after_create_session(None, None)
    world.secs = 500.0
    watch._check()
    watch.before_run(None)
    watch.after_run(None, None)
    world.secs = 1000.0
    watch._check()
    watch.before_run(None)
    world.secs = 1051.0
    assert_ends(watch, "workers_missing")


def test_a_worker_that_was_started_again_cannot_come_back_into_a_step(world, monkeypatch):
    """Issue: its port answered again after 4 s, and the others stayed in their step for ever, or in new sessions."""
    marks = []
    monkeypatch.setattr(strategies.clients, "set_mark",
                        lambda task, name, is_set=True: marks.append((name, is_set)) or True)
    monkeypatch.setattr(strategies.clients, "has_mark", lambda task, name: name == strategies._MARK)
    with contextlib.ExitStack() as stack:
        watch = strategies.PeerWatch(CLUSTER, TIMEOUTS, stack, is_collective=True)
        watch.begin()
        watch.after_create_session(None, None)
        for _ in range(2):
            watch.before_run(None)
            watch.after_run(None, None)
        watch.before_run(None)
        for secs, answering in [(0, set()), (4, {"w:1"}), (10, {"w:1"})]:
            world.secs, world.answering = secs, answering
            watch._check()
        world.secs = 11.0
        assert_ends(watch, "task_lost")
        with raises("task_lost"):
            watch.after_create_session(None, None)
        monkeypatch.setattr(strategies.clients, "has_mark", lambda task, name: True)
        world.secs, watch._ended = 21.5, set()  # its port answered each time
        assert_ends(watch, "task_lost")
        assert not watch._is_ready(Task("worker", 1, "w:1"))
    assert marks == [(strategies._LEFT, False), (strategies._MARK, True), (strategies._LEFT, True),
                     (strategies._MARK, False)]


def test_an_error_because_of_another_worker_may_be_tried_again(watch):
    """Issue: the first session of a worker that was started again failed, and its process ended with 1."""
    watch.raise_if_aborted(tf.errors.FailedPreconditionError(None, None, "no such table"))
    with raises("task_lost"):
        watch.raise_if_aborted(tf.errors.FailedPreconditionError(None, None, "Collective ops is aborted by: it"))


@pytest.mark.parametrize(("has_said_so", "gone_secs"), [(True, 11.0), (False, 101.0)])
def test_an_evaluator_takes_only_what_the_chief_has_said_for_a_good_end(world, tmp_path, has_said_so, gone_secs):
    """Issue: a chief that was restarted, or had crashed, was gone for 10 s, and the unfinished model was exported."""
    watch = strategy_ends.ChiefWatch(CLUSTER.chief, str(tmp_path), TIMEOUTS)
    assert not watch.is_over(has_max_steps=False) and watch.is_over(has_max_steps=True)
    strategy_ends.withdraw([], str(tmp_path))
    if has_said_so:
        strategy_ends.announce([], str(tmp_path), TIMEOUTS)
    world.answering, world.secs = set(), gone_secs - 1
    assert not watch.is_over(has_max_steps=False)
    world.secs = gone_secs
    if has_said_so:
        assert watch.is_over(has_max_steps=False)
    else:
        with pytest.raises(ChiefFailedError):
            watch.is_over(has_max_steps=False)


def test_an_evaluator_does_not_wait_for_ever_for_a_chief_that_never_comes(world, tmp_path):
    """What an earlier training has said counts when the time-out is over."""
    watch = strategy_ends.ChiefWatch(CLUSTER.chief, str(tmp_path), TIMEOUTS)
    world.answering, world.secs = set(), 101.0
    with pytest.raises(ClusterLostError, match="worker:0"):
        watch.is_over(has_max_steps=False)
    strategy_ends.announce([], str(tmp_path), TIMEOUTS)
    world.secs = 100.0
    assert not watch.is_over(has_max_steps=False)
    world.secs = 101.0
    assert watch.is_over(has_max_steps=False)


def test_the_chief_tells_the_others_that_training_has_ended(tmp_path):
    """In their servers; it takes that back before it trains again, and misses one that is not there."""
    addresses = [f"localhost:{port}" for port in processes.free_ports(3)]
    own = Cluster("worker", 1, {"worker": dict(enumerate(addresses))})
    server = tf.train.Server(tf.train.ClusterSpec({"worker": addresses}), "worker", 1)
    timeouts = Timeouts(heartbeat_secs=1)

    def code_at_end():
        with pytest.raises((SystemExit, ClusterLostError)) as caught:
            strategy_ends.end_as_server(own)
        return caught.value.code

    assert server and code_at_end() == "task_lost"
    strategy_ends.announce(own.workers[1:], str(tmp_path), timeouts)
    assert code_at_end() == 0 and (tmp_path / strategy_ends.FILE).exists()
    strategy_ends.withdraw(own.workers[1:], str(tmp_path))
    assert code_at_end() == "task_lost" and not (tmp_path / strategy_ends.FILE).exists()


@pytest.mark.parametrize(("has_said_so", "code"), [(True, 0), (False, "no_workers")])
def test_a_ps_stays_until_the_chief_has_said_that_training_has_ended(world, monkeypatch, has_said_so, code):
    """Issue: it ended at once, and the launcher restarted no task from then on."""
    events = [{"w:0"}, {"w:0", "w:1"}, set(), {"w:1"}, set(), set()]

    class Stop:
        def wait(self, secs):
            world.answering, world.secs = events.pop(0), world.secs + 60.0

        set = None

    monkeypatch.setattr(strategy_ends, "threading", types.SimpleNamespace(Event=Stop))
    monkeypatch.setattr(strategy_ends.clients, "has_mark", lambda task, name: has_said_so and len(events) < 2)
    with pytest.raises((SystemExit, ClusterLostError)) as caught:
        strategy_ends.wait_as_ps(Task("ps", 0, "p:0"), CLUSTER.workers, lambda *args, **kwargs: None, TIMEOUTS)
    assert caught.value.code == code and len(events) == (1 if has_said_so else 0)
