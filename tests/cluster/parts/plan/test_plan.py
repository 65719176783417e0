"""The plan of a training against what a real step of it transfers and what is on its ps."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from ps_train.errors import MissingDataError
from ps_train.parts.plan import plan
from ps_train.parts.plan.verb import parse_plan
from ps_train.updates.update import Period
from tests import clusters
from tests.cluster.parts.profile.test_part import profiled
from tests.errors import raises
from tests.processes import DEADLINE_SECS, REPO
from tests.tensorflow_mode import tf


def recorded_transfers(worker):
    """Returns (sender, receiver) -> tensor -> its bytes, over all steps of a training that is profiled."""
    runs, transfers = [], {}
    worker.profile._write = lambda new_runs, shifts: runs.extend(new_runs)
    worker.start()
    worker.result()
    for run in runs:
        for span in run.spans:
            if span.sender and span.num_bytes:
                transfers.setdefault((span.sender, span.task), {})[span.node] = span.num_bytes
    return transfers


@pytest.mark.parametrize(("num_ps", "options"), [
    (1, {}), (2, {"optimizer_name": "adam"}), (2, {"gradients": 1}), (2, {"steps_per_execution": 4}),
    (2, {"period": Period(steps=4, warmup_steps=0, train_steps=20)})], ids=str)
def test_the_plan_has_what_a_step_transfers(tmp_path, start_servers, num_ps, options):
    """The same number of tensors each way, with the same bytes; transfers between ps are counted apart."""
    worker = profiled(start_servers(num_ps, 1), 0, tmp_path, 20, range(4, 14), **options)
    planned = plan.make_plan(worker.graph, "worker:0", num_ps=num_ps, num_steps=1, process_bytes=0, ps_process_bytes=0)
    recorded = recorded_transfers(worker)
    for sent, ends in ((planned.pulled, ("ps", "worker")), (planned.pushed, ("worker", "ps")),
                       (planned.between_ps, ("ps", "ps"))):
        # By size: TensorFlow sends the input of an identity under that one's name.
        seen = sorted(size for tasks, nodes in recorded.items()
                      if tuple(task.partition(":")[0] for task in tasks) == ends for size in nodes.values())
        assert sorted(tensor.num_bytes for tensor in sent) == seen, (planned.sent, recorded)


def test_the_plan_has_the_bytes_of_each_variable(tmp_path, start_servers):
    """As numpy counts them in the chief's session, each on the ps that the plan says; the text names each one."""
    worker = clusters.Worker(start_servers(2, 1), 0, tmp_path, 5)
    planned = plan.make_plan(worker.graph, "worker:0", num_ps=2, num_steps=1, process_bytes=10**7,
                             ps_process_bytes=10**6)
    worker.start()
    worker.result()
    reader = tf.train.load_checkpoint(str(tmp_path))
    sizes = {name: reader.get_tensor(name).nbytes for name in reader.get_variable_to_shape_map()}
    assert {variable.name: variable.num_bytes for variable in planned.placed} == {name: sizes[name] for name in sizes}
    assert sum(planned.ps_bytes(ps) for ps in (0, 1)) == sum(sizes.values()) + sum(planned.working_bytes.values())
    record = plan.plan_record(planned)
    text = "\n".join(plan.plan_lines(record))
    assert all(variable.name in text for variable in planned.placed)
    assert [ps["ps"] for ps in record["ps"]] == [0, 1]
    assert record["ps"][0]["memory_bytes"] == 10**6 + planned.ps_bytes(0)
    assert record["worker"]["memory_bytes"] > 10**7


@pytest.mark.parametrize(("num_bytes", "kind", "is_named"), [
    (2**31, plan.PARAMETER, True), (2**31, plan.SLOT, True), (2**30, plan.PARAMETER, False),
    (2**31, plan.TABLE, False), (None, plan.TABLE, False)])
def test_a_variable_that_cannot_be_saved_is_named(num_bytes, kind, is_named):
    """Issue: training ran to its end, and failed to save: "Cannot encode a Tensor that exceeds the 2GB ... limit"."""
    planned = plan.TrainingPlan([plan.PlacedVariable("big", kind, 0, num_bytes)], {0: 0}, [], 1, 0, 0)
    lines = plan.plan_lines(plan.plan_record(planned))
    assert any(line.startswith("big: cannot be saved") for line in lines) == is_named


@pytest.fixture
def without_mnist(monkeypatch):
    """MNIST cannot be fetched."""
    from data import mnist_files  # noqa: PLC0415 (from the checkout, which is the working directory)

    def refuse(*_):
        raise MissingDataError("download_failed", "no network", "use --dataset=data.digits")

    monkeypatch.chdir(REPO)
    monkeypatch.setattr(mnist_files, "ensure", refuse)


def test_a_plan_without_data_is_that_of_the_synthetic_digits(without_mnist, monkeypatch, caplog):
    """`launch` trains on them where the user has chosen no data; one line says so."""
    monkeypatch.setattr(logging.getLogger("ps_train"), "propagate", True)
    config, plugins = plan._with_data(parse_plan(["--num_ps=1"], {})[0])
    assert (config.dataset, plugins.dataset.name) == ("data.digits", "data.digits")
    [line] = set(caplog.messages)  # pytest may have two handlers
    assert "no network" in line and "--dataset=data.digits" in line and "\n" not in line


@pytest.mark.parametrize("flag", ["--dataset=data.mnist", "--data_dir=/nowhere"])
def test_data_that_was_chosen_is_not_replaced(without_mnist, flag):
    """As by `launch`."""
    with raises("download_failed"):
        plan._with_data(parse_plan([flag], {})[0])


def test_the_memory_is_that_of_this_process_and_not_of_the_one_that_started_it():
    """A peak that getrusage reports outlives an exec: a child of a large process would seem as large."""
    code = ("import subprocess, sys; big = bytearray(1 << 30); big[::4096] = b'x' * len(big[::4096]); "
            "subprocess.run([sys.executable, '-c', 'from ps_train.parts.plan import plan; print(plan._used_bytes())'])")
    ended = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True,
                           timeout=DEADLINE_SECS, check=True)
    assert int(ended.stdout.split()[-1]) < 1 << 30
