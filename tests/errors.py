"""Asserts errors by their codes, so that the wording of a message may change; docs/errors.md has the wording."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ps_train.errors import PsTrainError


@contextlib.contextmanager
def raises(*codes: str, kind: type[PsTrainError] = PsTrainError) -> Iterator[pytest.ExceptionInfo[PsTrainError]]:
    """Expects an error of a kind whose problems have exactly these codes, in this order."""
    with pytest.raises(kind) as caught:
        yield caught
    assert codes_of(caught.value) == list(codes)


def error_of(function: Callable[..., object], *arguments: Any, **named: Any) -> PsTrainError:
    """Returns the error of ps_train with which a call ends."""
    with pytest.raises(PsTrainError) as caught:
        function(*arguments, **named)
    return caught.value


def codes_of(error: PsTrainError) -> list[str]:
    """Returns the codes of the problems of an error."""
    return [problem.code for problem in error.problems]
