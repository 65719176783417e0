"""The ranks of Horovod, from a cluster."""

from __future__ import annotations

import json

import pytest

from ps_train.parts.legacy.horovod import ranks
from tests.errors import raises

HOSTS = {"ps": ["a:1"], "worker": ["a:2", "b:1", "a:3", "b:2", "c:1"]}


def tf_config(job, index, hosts=None):
    """Returns the text of TF_CONFIG."""
    return json.dumps({"cluster": hosts or HOSTS, "task": {"type": job, "index": index}})


@pytest.mark.parametrize(("index", "local", "cross"), [
    (0, (0, 2), (0, 3)), (1, (0, 2), (1, 3)), (2, (1, 2), (0, 2)), (3, (1, 2), (1, 2)), (4, (0, 1), (2, 3))])
def test_a_worker_has_a_number_among_all_on_its_machine_and_among_the_machines(index, local, cross):
    """As Horovod numbers the processes of an uneven cluster."""
    found = ranks.ranks_of(ranks.horovod_cluster(tf_config("worker", index)))
    assert (found.rank, found.size) == (index, 5)
    assert (found.local_rank, found.local_size) == local
    assert (found.cross_rank, found.cross_size) == cross
    assert not found.is_homogeneous


def test_the_chief_is_rank_0():
    """Also where it has a job of its own."""
    hosts = {"ps": ["a:1"], "chief": ["b:1"], "worker": ["a:2", "a:3"]}
    found = [ranks.ranks_of(ranks.horovod_cluster(tf_config(job, index, hosts)))
             for job, index in (("chief", 0), ("worker", 0), ("worker", 1))]
    assert [(one.rank, one.local_rank) for one in found] == [(0, 0), (1, 0), (2, 1)]


def test_without_tf_config_the_script_is_alone():
    """Rank 0 of 1, as `python train.py` with Horovod."""
    assert ranks.horovod_cluster(" ") is None
    assert (ranks.ALONE.rank, ranks.ALONE.size, ranks.ALONE.local_size, ranks.ALONE.cross_size) == (0, 1, 1, 1)
    assert ranks.ALONE.is_homogeneous


def test_a_cluster_without_a_ps_and_an_evaluator_are_refused():
    """Nobody would have the variables, and nothing would end the evaluator."""
    with raises("horovod_task"):
        ranks.horovod_cluster(tf_config("evaluator", 0, {**HOSTS, "chief": ["b:3"]}))
    with raises("tf_config_without_ps"):
        ranks.horovod_cluster(tf_config("worker", 0, {"worker": ["a:1"]}))
