"""The plan of a training against what a real step of it transfers and what is on its ps."""

from __future__ import annotations

import pytest

from ps_train.parts.plan import plan
from ps_train.updates.local_steps.period import Period
from tests import clusters
from tests.cluster.parts.profile.test_recorder import profiled
from tests.tensorflow_mode import tf


def recorded_transfers(worker):
    """Returns (sender, receiver) -> tensor -> its bytes, over all steps of a training that is profiled."""
    runs, found = [], {}
    worker.profile._write = lambda found, shifts: runs.extend(found)
    worker.start()
    worker.result()
    for run in runs:
        for span in run.spans:
            if span.sender and span.num_bytes:
                found.setdefault((span.sender, span.task), {})[span.node] = span.num_bytes
    return found


@pytest.mark.parametrize(("num_ps", "options"), [
    (1, {}), (2, {}), (2, {"optimizer_name": "adam"}), (2, {"gradients": 1}), (2, {"steps_per_execution": 4}),
    (2, {"period": Period(steps=4, warmup_steps=0, train_steps=30)})], ids=str)
def test_the_plan_has_what_a_step_transfers(tmp_path, start_servers, num_ps, options):
    """The same number of tensors each way, with the same bytes; what a ps sends another one is no worker's."""
    worker = profiled(start_servers(num_ps, 1), 0, tmp_path, 30, range(4, 24), **options)
    made = plan.make_plan(worker.graph, "worker:0", num_ps=num_ps, num_steps=1, process_bytes=0, ps_process_bytes=0)
    recorded = recorded_transfers(worker)
    for planned, ends in ((made.moved(pulled=True), ("ps", "worker")), (made.moved(pulled=False), ("worker", "ps")),
                          (made.between_ps, ("ps", "ps"))):
        # By size: TensorFlow sends the input of an identity under that one's name.
        seen = sorted(size for tasks, nodes in recorded.items()
                      if tuple(task.partition(":")[0] for task in tasks) == ends for size in nodes.values())
        assert sorted(one.num_bytes for one in planned) == seen, (made.sent, recorded)


def test_the_plan_has_the_bytes_of_each_variable(tmp_path, start_servers):
    """As numpy counts them in the chief's session, each on the ps that the plan says; the text names each one."""
    worker = clusters.Worker(start_servers(2, 1), 0, tmp_path, 5)
    made = plan.make_plan(worker.graph, "worker:0", num_ps=2, num_steps=1, process_bytes=10**7, ps_process_bytes=10**6)
    worker.start()
    worker.result()
    reader = tf.train.load_checkpoint(str(tmp_path))
    sizes = {name: reader.get_tensor(name).nbytes for name in reader.get_variable_to_shape_map()}
    assert {one.name: one.num_bytes for one in made.placed} == {name: sizes[name] for name in sizes}
    assert sum(made.ps_bytes(ps) for ps in (0, 1)) == sum(sizes.values()) + sum(made.working_bytes.values())
    text = "\n".join(plan.plan_lines(made))
    assert all(one.name in text for one in made.placed)
    record = plan.plan_record(made)
    assert [one["ps"] for one in record["ps"]] == [0, 1]
    assert record["ps"][0]["memory_bytes"] == 10**6 + made.ps_bytes(0)
    assert record["worker"]["memory_bytes"] > 10**7
