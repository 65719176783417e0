"""What is served equals what was trained, with real tasks, a publisher and servers of which each is killed."""

from __future__ import annotations

from tests import soak_publish
from tests.soak_publish import FOLLOWER, PUBLISHER, TARGET


def test_rows_served_equal_rows_trained_whatever_is_killed(tmp_path):
    """One by one, in a reader of the folder and in two servers; ids that were dropped are gone."""
    lines = []
    lost = (PUBLISHER, TARGET, "ps-1", FOLLOWER, "worker-0")
    soak_publish.run(tmp_path, lost, [0.0] * len(lost), lines.append)
    assert len(lines) == len(lost) + 1 and lines[-1].endswith(" rows served equal those trained")
