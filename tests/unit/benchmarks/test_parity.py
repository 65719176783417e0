"""How values of TensorFlow 1.15 are compared with those of ps_train."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.parity_with_1_15 import differences


def case(*values, **changes):
    """Returns what one run of a case came to."""
    return {"paths": [f"/{index}" for index in range(len(values))], "values": [list(map(np.asarray, values))],
            "variables": [("w", [2])], "trainable": ["w"], "collections": {"losses": 0}, **changes}


def test_values_may_differ_by_rounding_only():
    """Not in their shapes, and not where they are text or whole numbers."""
    same = case(1.0, [2, 3], [b"a"])
    assert differences(same, case(1.00001, [2, 3], [b"a"])) == []
    for other in (case(1.001, [2, 3], [b"a"]), case(1.0, [2, 4], [b"a"]), case(1.0, [2, 3], [b"b"]),
                  case([1.0], [2, 3], [b"a"]), case(1, [2, 3], [b"a"]), case(b"1", [2, 3], [b"a"])):
        [line] = differences(same, other)
        assert line.partition(",")[0] in ("/0", "/1", "/2")
    assert differences(case(20000), case(20001)) != []


@pytest.mark.parametrize("what, other", [
    ("variables", [("v", [2])]), ("trainable", []), ("collections", {"losses": 1})])
def test_variables_and_collections_are_compared_too(what, other):
    """Where they differ, the values are not looked at."""
    [line] = differences(case(1.0), case(2.0, **{what: other}))
    assert line.startswith(what)


def test_a_failure_of_either_is_a_difference():
    """It says which of them failed."""
    [line] = differences(case(1.0), "ValueError: no")
    assert "runs" in line and "ValueError: no" in line
