"""The flags of `ps_train publish`."""

from __future__ import annotations

import pytest

from ps_train.parts.publish.flags import parse_publish, split_targets
from tests.errors import raises


def test_targets_are_split():
    """Several are separated by commas."""
    assert split_targets("--targets", "a:1/m, b:2/n") == ["a:1/m", "b:2/n"]
    assert split_targets("--targets", "") == []


@pytest.mark.parametrize("text", ["a:1", "a/m", "a:x/m", "a:1/m,", "a:1/m,a:1/m"])
def test_other_targets_are_refused(text):
    """Without a port or a model, and twice."""
    with raises("flag_malformed"):
        split_targets("--targets", text)


@pytest.mark.parametrize(("words", "code"), [
    (["--publish_dir=/p"], "flag_missing"), (["--train_dir=/t"], "flag_missing"),
    (["--train_dir=s3://b/t", "--publish_dir=/p"], "path_is_url"),
    (["--train_dir=/t", "--publish_dir=/p", "--checkpoint=7"], "flags_conflict"),
    (["--train_dir=/t", "--publish_dir=/p[1]"], "path_is_pattern"),
    (["--train_dir=/t", "--publish_dir=/p", "--targets=a"], "flag_malformed"),
    (["--train_dir=/t", "--publish_dir=/p", "--publish_secs=0"], "flag_out_of_range")])
def test_wrong_flags_are_refused(words, code):
    """Before TensorFlow is imported."""
    with raises(code):
        parse_publish(words)


@pytest.mark.parametrize("text", ["http://a:1/m", "s3://bucket"])
def test_urls_of_no_folder_in_a_store_are_refused(text):
    """As for --train_dir."""
    assert split_targets("--targets", "s3://bucket/served,a:1/m") == ["s3://bucket/served", "a:1/m"]
    with raises("url_malformed"):
        split_targets("--targets", text)
