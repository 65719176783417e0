"""The flags of evaluations during training."""

from __future__ import annotations

import pytest

from ps_train.config.task import parse_task
from ps_train.errors import ConfigError
from ps_train.parts.selection import flags as selection_flags
from ps_train.parts.selection.flags import Target


@pytest.mark.parametrize("text, expected", [
    ("", None), ("accuracy", ("accuracy", True)), ("accuracy:min", ("accuracy", False)), ("loss", ("loss", False)),
    ("log_loss", ("log_loss", False)), ("mean/Error", ("mean/Error", False)), ("loss:max", ("loss", True))])
def test_a_target_has_a_direction(text, expected):
    """Smaller is better for what is called loss or error, unless told otherwise."""
    assert selection_flags.parse_target("--keep_best", text) == (Target(*expected) if expected else None)


@pytest.mark.parametrize("text, expected", [
    ("", None), ("auc:3", (Target("auc", True), 3)), ("auc:min:12", (Target("auc", False), 12))])
def test_stopping_has_a_patience(text, expected):
    """The last part of the text."""
    assert selection_flags.parse_stopping("--early_stopping", text) == expected


@pytest.mark.parametrize("flags, message", [
    (["--keep_best=a:up"], "--keep_best: got 'a:up'; allowed: METRIC, METRIC:min or METRIC:max"),
    (["--early_stopping=auc"], "--early_stopping: got 'auc'; allowed: METRIC:PATIENCE"),
    (["--early_stopping=auc:0"], "--early_stopping: got 'auc:0'; .* at least 1 evaluation"),
    (["--exporters=final"], "--exporters: got 'final' without --export_dir"),
    (["--exporters=newest", "--export_dir=x"], "--exporters: got 'newest'; allowed: latest, best, final"),
    (["--exporters=best", "--export_dir=x"], "--exporters: got 'best' without --keep_best"),
])
def test_a_wrong_flag_is_one_line(flags, message):
    """Before TensorFlow is imported."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse_task(flags, {})
    assert "\n" not in str(caught.value)
