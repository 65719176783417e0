"""The table of variables."""

from __future__ import annotations

from ps_train.cluster.spec import Cluster
from ps_train.graph import placement
from ps_train.parts.placement_table.part import variable_table
from tests.tensorflow_mode import tf

CLUSTER = Cluster("worker", 0, {"ps": {0: "localhost:1", 1: "localhost:2"}, "worker": {0: "localhost:3"}})


def test_the_table_names_variable_ps_and_bytes():
    """With a total for each ps; of very many variables it shows the largest."""
    with tf.Graph().as_default(), placement.on_cluster(CLUSTER, CLUSTER.task.device + "/cpu:0"):
        for index in range(100):
            tf.get_variable(f"v{index}", [10 + index])
        lines = variable_table(tf.global_variables()[:2])
        assert [line.split() for line in lines] == [
            ["variable", "ps", "bytes"], ["v0", "0", "40"], ["v1", "1", "44"], ["all", "0", "40"], ["all", "1", "44"]]
        lines = variable_table(tf.global_variables())
    assert len(lines) == 1 + 40 + 1 + 2
    assert lines[-3].split() == ["and", "60", "smaller", "ones"]
