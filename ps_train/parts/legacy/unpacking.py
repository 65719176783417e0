"""How many values does the statement take apart that called a function? One that returned fewer before asks for it.

    outputs, state = dynamic_decode(decoder)              TensorFlow 1.0 and 1.1
    outputs, state, lengths = dynamic_decode(decoder)     1.2 and later
"""

from __future__ import annotations

import dis
import sys
import types
from typing import Any


def as_before(values: tuple[Any, ...], num_before: int) -> tuple[Any, ...]:
    """Returns what a function returns: its values, or only the first if its caller takes apart as many as it had."""
    caller = sys._getframe(2)  # noqa: SLF001 (no other way to know the caller)
    return values[:num_before] if num_unpacked(caller) == num_before else values


def num_unpacked(caller: types.FrameType) -> int | None:
    """Returns into how many values a frame takes apart the result of the call that it is in; None if it does not."""
    # The call itself is the last instruction at or before f_lasti, which may be in the call's cache.
    following = next((instruction for instruction in dis.get_instructions(caller.f_code)
                      if instruction.offset > caller.f_lasti), None)
    return following.arg if following is not None and following.opname == "UNPACK_SEQUENCE" else None
