"""The flag of the evaluation by all workers."""

from __future__ import annotations

import pytest

from ps_train.config.task import parse_task
from tests.errors import raises


@pytest.mark.parametrize("flags, name", [
    (["--eval_steps=5"], "eval_steps"), (["--keep_best=loss"], "keep_best"),
    (["--exporters=final, latest", "--export_dir=x"], "exporters"),
    (["--exporters=live", "--export_dir=x"], "exporters")])
def test_evaluations_during_training_are_refused(flags, name):
    """Only the chief could do them."""
    with raises("flags_conflict") as caught:
        parse_task(["--evaluate_with=workers", *flags], {})
    assert str(caught.value).startswith(f"--{name}: ")


def test_an_export_of_the_last_checkpoint_is_not():
    """The chief does that after the evaluation."""
    parse_task(["--evaluate_with=workers", "--exporters=final", "--export_dir=x"], {})
