"""What NumPy 2 does in another way than the NumPy of TF1 code, and ps_train cannot undo: the types of results."""

from __future__ import annotations

import re

_OUT_OF_BOUNDS = re.compile(r"Python integer -?\d+ out of bounds for (u?int\d+)")


def bounds_hint(error: BaseException) -> str:
    """Returns what to do about a number that a dtype cannot have; "" for another error."""
    found = _OUT_OF_BOUNDS.search(str(error)) if isinstance(error, OverflowError) else None
    return "" if found is None else (
        f"numpy 2 refuses a number that {found[1]} cannot have; numpy 1 computed with a larger type, or kept the "
        "lowest bits: write .astype(np.int64) behind the array, or use an environment with numpy<2, as of TensorFlow "
        "2.16.2 (docs/compatibility.md) [numpy_bounds]")
