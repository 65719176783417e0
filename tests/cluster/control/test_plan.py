"""The plan of a training against what a real step of it transfers and what is on its ps."""

from __future__ import annotations

import pytest

from ps_train.control import plan
from tests import clusters
from tests.cluster.training.profile.test_recorder import profiled
from tests.tensorflow_mode import tf


def recorded_transfers(worker):
    """Returns (sender, receiver) -> tensor -> its bytes, over all steps of a training that is profiled."""
    runs, found = [], {}
    worker.start()
    worker.profile._write = lambda found, shifts: runs.extend(found)
    worker.result()
    for run in runs:
        for span in run.spans:
            if span.sender and span.num_bytes:
                found.setdefault((span.sender, span.task), {})[span.node] = span.num_bytes
    return found


@pytest.mark.parametrize("num_ps", [1, 2])
def test_the_plan_has_what_a_step_transfers(tmp_path, start_servers, num_ps):
    """The same number of tensors each way, with the same bytes."""
    worker = profiled(start_servers(num_ps, 1), 0, tmp_path, 30, range(4, 24))
    made = plan.make_plan(worker.graph, "worker:0", num_ps=num_ps, num_steps=1, process_bytes=0, ps_process_bytes=0)
    recorded = recorded_transfers(worker)
    for pulled in (True, False):
        planned = sorted(one.num_bytes for one in made.moved(pulled=pulled))
        # By size: TensorFlow sends the input of an identity under that one's name.
        seen = sorted(size for (sender, receiver), nodes in recorded.items()
                      if (sender if pulled else receiver).startswith("ps:") and "worker:0" in (sender, receiver)
                      for size in nodes.values())
        assert planned == seen, (made.sent, recorded)


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
