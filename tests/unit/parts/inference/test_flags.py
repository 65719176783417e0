"""The flags of evaluate, predict and export."""

from __future__ import annotations

import pytest

from ps_train.errors import ConfigError
from ps_train.parts.inference import flags

_WRONG = [
    (flags.parse_evaluate, [], "--train_dir: not given; it is the folder of the checkpoints"),
    (flags.parse_evaluate, ["--train_dir=x", "--split=dev"], "--split: got 'dev'; allowed: one of test, train"),
    (flags.parse_evaluate, ["--train_dir=x", "--train_steps=5"], "--train_steps: has no effect in `ps_train eval"),
    (flags.parse_export, ["--train_dir=x"], "--export_dir: not given"),
    (flags.parse_predict, ["--train_dir=x"], "--output: not given"),
    (flags.parse_predict, ["--train_dir=x", "--output=p.txt"], "--output: got 'p.txt'; allowed: .* .csv, .npz"),
    (flags.parse_predict, ["--train_dir=x", "--output=p.csv", "--input=i.json"], "--input: got 'i.json'"),
    (flags.parse_predict, ["--saved_model=x", "--output=p.csv"], "--saved_model: given without --input"),
    (flags.parse_predict, ["--saved_model=x", "--output=p.csv", "--input=i.csv", "--checkpoint=3"],
     "--checkpoint: given with --saved_model"),
]


@pytest.mark.parametrize("parse, flags, message", _WRONG)
def test_a_wrong_flag_is_one_line(parse, flags, message):
    """What, what was given, what is allowed."""
    with pytest.raises(ConfigError, match=message) as caught:
        parse(flags)
    assert "\n" not in str(caught.value)
