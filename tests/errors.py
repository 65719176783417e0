"""Asserts errors by their codes, so that the wording of a message may change; docs/errors.md has the wording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from ps_train.errors import PsTrainError


@contextlib.contextmanager
def raises(*codes: str, kind: type[PsTrainError] = PsTrainError) -> Iterator[pytest.ExceptionInfo[PsTrainError]]:
    """Expects an error of a kind whose problems have exactly these codes, in this order."""
    with pytest.raises(kind) as caught:
        yield caught
    assert codes_of(caught.value) == list(codes)


def codes_of(error: PsTrainError) -> list[str]:
    """Returns the codes of the problems of an error."""
    return [problem.code for problem in error.problems]
