"""Sessions whose peer may be gone: what their errors mean."""

from __future__ import annotations

import pytest

from ps_train.coordination import sessions
from tests.tensorflow_mode import tf

SEVERAL = """
=====================
CANCELLED: From /job:worker/replica:0/task:0:
Operation was cancelled
\t [[{{node input/IteratorGetNext}}]]
ABORTED: From /job:ps/replica:0/task:0:
Session handle is not found: b3eca4c745b9e3b9. Possibly this worker just restarted.
=====================
"""


@pytest.mark.parametrize(("kind", "message", "expected"), [
    (tf.errors.AbortedError, "x", True),
    (tf.errors.UnavailableError, "x", True),
    (tf.errors.DeadlineExceededError, "x", True),
    (tf.errors.CancelledError, SEVERAL, True),
    (tf.errors.InternalError, SEVERAL, True),
    (tf.errors.FailedPreconditionError, "Could not find variable w. This could mean", True),
    (tf.errors.NotFoundError, "Resource ps/w/N10tensorflow3VarE does not exist.", True),
    (tf.errors.NotFoundError, "Container localhost does not exist. (Could not find resource: localhost/w)", True),
    (tf.errors.NotFoundError, "data/train.tfrecord; No such file or directory", False),
    (tf.errors.NotFoundError, "/data/Resources/train.tfrecord; No such file or directory", False),
    (tf.errors.NotFoundError, "/data/My Resource/a b does not exist; No such file or directory", False),
    (tf.errors.FailedPreconditionError, "Table not initialized.\n\t [[{{node Resources/LookupTableFindV2}}]]", False),
    (tf.errors.InvalidArgumentError, "Incompatible shapes: [2] vs. [3]", False),
    (tf.errors.OutOfRangeError, "End of sequence", False),
])
def test_a_lost_cluster_is_told_from_a_fault_of_the_user(kind, message, expected):
    """By the type of the error, or by what it lists where a step failed at several places."""
    assert sessions.is_lost(kind(None, None, message)) is expected
