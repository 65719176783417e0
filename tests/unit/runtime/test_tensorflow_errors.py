"""The texts of TensorFlow's errors: which of their lines says what happened."""

from __future__ import annotations

import pytest

from ps_train.runtime import tensorflow_errors

SEVERAL = """
=====================
CANCELLED: From /job:worker/replica:0/task:0:
Operation was cancelled
\t [[{{node input/IteratorGetNext}}]]
ABORTED: From /job:ps/replica:0/task:0:
Session handle is not found: b3eca4c745b9e3b9. Possibly this worker just restarted.
=====================
"""


class OpError(Exception):
    """Has the attribute of TensorFlow's, whose `str` adds more lines."""

    def __init__(self, message):
        super().__init__(f"{message}\n\nOriginal stack trace for 'x':")
        self.message = message


@pytest.mark.parametrize(("message", "expected"), [
    ("Graph execution error:\n\nDetected at node 'save/SaveV2' defined at (most recent call last):\n    File \"a\"\n"
     "      saver.save()\nNode: 'save/SaveV2'\n/x; No space left on device\n\t [[{{node save/SaveV2}}]]",
     "/x; No space left on device"),
    ("Graph execution error:\n\nDetected at node add defined at:\n\nsocket closed", "socket closed"),
    ("From /job:worker/replica:0/task:0:\n/x; Permission denied\n\t [[{{node a}}]]", "/x; Permission denied"),
    ("2 root error(s) found.\n  (0) ABORTED: From /job:ps/replica:0/task:0:\nsocket closed\n", "socket closed"),
    ("Operation timed out.", "Operation timed out."),
    ("File system scheme s3 not implemented\n\t [[{{node a}}]]", "File system scheme s3 not implemented"),
    (SEVERAL, "Operation was cancelled"),
    ("[[{{node a}}]]", "[[{{node a}}]]"),
    ("", "OpError"),
])
def test_the_reason_is_the_line_that_says_what_happened(message, expected):
    """Not the boilerplate around it; if there is nothing else, the first line, or the type."""
    assert tensorflow_errors.reason(OpError(message) if message else type("OpError", (Exception,), {})()) == expected


def test_the_reason_of_another_error_is_its_first_line():
    """An OSError or a ValueError has only its text."""
    assert tensorflow_errors.reason(ValueError("wrong\nbecause")) == "wrong"
    assert tensorflow_errors.reason(KeyError()) == "KeyError"
