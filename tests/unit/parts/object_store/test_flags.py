"""URLs as --train_dir, and texts without credentials."""

from __future__ import annotations

import tempfile

import pytest

from ps_train.config import launch, task
from ps_train.parts.object_store import store
from tests.errors import raises

_TASK = ("--job_name=worker", "--task_index=0", "--ps_hosts=h:1", "--worker_hosts=h:2")


@pytest.mark.parametrize("url", [
    "s3://b/run", "gs://b/a/run", "memory://run", "file:///tmp/my run", "hdfs://me@host:8020/run", "/tmp/run"])
def test_a_url_of_a_store_is_a_train_dir(url):
    """As is a path."""
    assert task.parse_task([*_TASK, f"--train_dir={url}"]).train_dir == url


@pytest.mark.parametrize(("url", "code"), [
    ("s3://", "url_malformed"), ("s3:///run", "url_malformed"), ("gs://b/", "url_malformed"),
    ("http://b/run", "url_malformed"), ("a b://c/d", "url_malformed"), ("s3://me:s3cret@b/run", "credentials_in_url"),
    ("S3://me:s3cret@b/run", "credentials_in_url"), ("s3://me:s3/cr@et@b/run", "credentials_in_url")])
def test_a_url_of_another_form_is_refused_without_its_password(url, code):
    """No bucket, a whole bucket, a web page, credentials."""
    with raises(code) as caught:
        task.parse_task([*_TASK, f"--train_dir={url}"])
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["run[1]", "[a]", "a\\b", "1[/]/run"])
def test_a_folder_whose_checkpoints_tensorflow_would_miss_is_refused(name, monkeypatch):
    """Issue: each save failed, so the training was lost. Of a launch as of a task, and also of a default folder."""
    for parse, flags in ((task.parse_task, _TASK), (launch.parse_launch, ())):
        with raises("path_is_pattern") as caught:
            parse([*flags, f"--train_dir=/tmp/{name}"])
        assert f"{'/tmp/' + name!r}" in str(caught.value)
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "tempdir", f"/tmp/{name}")
            for folder in ([], ["--train_dir=s3://b/run[1]"]):
                with raises("path_is_pattern"):
                    parse([*flags, *folder])


@pytest.mark.parametrize("train_dir", ["/tmp/a*b", "/tmp/a?b", "/tmp/a[", "/tmp/a]b[", "/tmp/{a}", "s3://b/run[1]"])
def test_a_folder_whose_checkpoints_tensorflow_finds_is_not_refused(train_dir):
    """A URL becomes a folder with another name."""
    assert task.parse_task([*_TASK, f"--train_dir={train_dir}"]).train_dir == train_dir


@pytest.mark.parametrize(("text", "shown"), [
    ("no key AbCdEf0123456789 here", "no key *** here"),
    ("GET https://b.host/run/x?X-Amz-Signature=1234&y=2 failed", "GET https://b.host/run/x?*** failed"),
    ("cannot connect to http://me:pass@host:9000/b", "cannot connect to http://me:***@host:9000/b"),
    ("Access Denied", "Access Denied")])
def test_a_message_has_no_credentials(monkeypatch, text, shown):
    """The libraries of the stores may repeat what they were given."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "AbCdEf0123456789")
    assert store.without_credentials(text) == shown
