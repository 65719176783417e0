"""The flags of evaluations during training."""

from __future__ import annotations

import pytest

from ps_train.config.task import parse_task
from ps_train.parts.selection import flags as selection_flags
from ps_train.parts.selection.flags import Target
from tests.errors import raises


@pytest.mark.parametrize("text, expected", [
    ("", None), ("accuracy", ("accuracy", True)), ("accuracy:min", ("accuracy", False)), ("loss", ("loss", False)),
    ("log_loss", ("log_loss", False)), ("mean/Error", ("mean/Error", False)), ("loss:max", ("loss", True))])
def test_a_target_has_a_direction(text, expected):
    """Smaller is better for a metric called loss or error, unless the flag says otherwise."""
    assert selection_flags.parse_target("--keep_best", text) == (Target(*expected) if expected else None)


@pytest.mark.parametrize("text, expected", [
    ("", None), ("auc:3", (Target("auc", True), 3)), ("auc:min:12", (Target("auc", False), 12))])
def test_stopping_has_a_patience(text, expected):
    """The last part of the text."""
    assert selection_flags.parse_stopping("--early_stopping", text) == expected


@pytest.mark.parametrize("flags, code", [
    (["--keep_best=a:up"], "flag_malformed"),
    (["--early_stopping=auc"], "flag_malformed"),
    (["--early_stopping=auc:0"], "flag_malformed"),
    (["--exporters=final"], "flag_missing"),
    (["--exporters=newest", "--export_dir=x"], "flag_out_of_range"),
    (["--exporters=best", "--export_dir=x"], "flag_missing"),
    (["--export_dir=x[1]"], "path_is_pattern"),
])
def test_a_wrong_flag_is_one_line(flags, code):
    """Before TensorFlow is imported."""
    with raises(code) as caught:
        parse_task(flags, {})
    assert str(caught.value).startswith(flags[0].partition("=")[0]) and "\n" not in str(caught.value)
