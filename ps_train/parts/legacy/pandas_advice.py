"""What pandas 3 does in another way than the pandas of TF1 code, and ps_train cannot undo: each column is a copy."""

from __future__ import annotations

import re
import sys

_READ_ONLY = re.compile(r"\b(array|destination) is read-only")


def read_only_hint(error: BaseException) -> str:
    """Returns what to do about an array of pandas 3 that a script changes; "" for another error."""
    pandas = sys.modules.get("pandas")
    if not (isinstance(error, ValueError) and _READ_ONLY.search(str(error)) and _has_copies(
            getattr(pandas, "__version__", ""))):
        return ""
    return ("if the array is one of pandas, such as `frame.values`: it is read-only since pandas 3; change a copy, as "
            "`frame.values.copy()`, or run pip install 'pandas<3' [pandas_read_only]")


def _has_copies(version: str) -> bool:
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 3
