"""The flags of evaluate, predict and export."""

from __future__ import annotations

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.inference import flags
from ps_train.parts.live.flags import parse_live_export
from tests.errors import raises


@pytest.mark.parametrize("parse, flags, code, name", [
    (flags.parse_evaluate, [], "flag_missing", "train_dir"),
    (flags.parse_export, ["--train_dir=x"], "flag_missing", "export_dir"),
    (flags.parse_predict, ["--train_dir=x"], "flag_missing", "output"),
    (flags.parse_predict, ["--train_dir=x", "--output=p.txt"], "flag_malformed", "output"),
    (flags.parse_predict, ["--train_dir=x", "--output=p.csv", "--input=i.json"], "flag_malformed", "input"),
    (flags.parse_predict, ["--saved_model=x", "--output=p.csv"], "flag_missing", "saved_model"),
    (flags.parse_predict, ["--saved_model=x", "--output=p.csv", "--input=i.csv", "--checkpoint=3"], "flags_conflict",
     "checkpoint"),
    (flags.parse_export, ["--train_dir=x", "--export_dir=x[1]"], "path_is_pattern", "export_dir"),
    (parse_live_export, ["--train_dir=x", "--export_dir=x[1]", "--live"], "path_is_pattern", "export_dir"),
    (flags.parse_predict, ["--saved_model=x[1]/7", "--output=p.csv", "--input=i.csv"], "path_is_pattern",
     "saved_model"),
])
def test_a_wrong_flag_is_one_line(parse, flags, code, name):
    """It begins with the flag."""
    with raises(code) as caught:
        parse(flags)
    assert str(caught.value).startswith(f"--{name}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("flag", ["--split=dev", "--train_steps=5"])
def test_a_value_or_a_flag_that_evaluate_does_not_have_is_refused(flag):
    """By the rules of all flags."""
    with pytest.raises(ConfigError, match=flag.partition("=")[0]):
        flags.parse_evaluate(["--train_dir=x", flag])
