"""What the errors of the libraries behind fsspec mean."""

from __future__ import annotations

import pytest

from ps_train.parts.object_store import store
from ps_train.parts.object_store.store import StoreError, translated


def _of_s3fs(error, reason):
    """Returns an error with the reason of S3, whose name is in the error that caused it only."""
    error.__cause__ = Exception(reason)
    return error


@pytest.mark.parametrize(("error", "kind"), [
    (FileNotFoundError("The specified bucket does not exist"), "missing"),
    (PermissionError("Access Denied"), "denied"),
    (OSError(22, "AuthorizationHeaderMalformed: the region 'us-east-1' is wrong"), "denied"),
    (OSError("An error occurred (PermanentRedirect) when calling the ListObjectsV2 operation"), "denied"),
    (_of_s3fs(OSError(78, "The bucket you are attempting to access must be addressed using the specified endpoint."),
              "An error occurred (PermanentRedirect) when calling the PutObject operation"), "denied"),
    (_of_s3fs(OSError(16, "Please reduce your request rate."), "An error occurred (SlowDown) when calling"), ""),
    (type("NoCredentialsError", (Exception,), {})("Unable to locate credentials"), "denied"),
    (OSError(16, "SlowDown"), ""),
    (OSError("An error occurred (XMinioStorageFull) when calling the PutObject operation"), ""),
    (TimeoutError(), ""),
    (OSError("An error occurred (403) when calling the HeadObject operation"), "denied"),
    (OSError("401, message='Invalid credentials'"), "denied"),
    (OSError("connection reset: http://store:403/b/run-401/model.ckpt-403.index, model.ckpt-401.data-00403-of-00404"),
     ""),
])
def test_an_error_that_may_pass_is_told_from_one_that_will_not(error, kind):
    """The first is tried again; the second is reported at once."""
    with pytest.raises(StoreError) as caught, translated():
        raise error
    assert caught.value.kind == kind and str(caught.value)


@pytest.mark.parametrize(("url", "expected"), [
    ("gs://bucket/run", {"trust_env": True}), ("gcs://bucket/run", {"trust_env": True}), ("s3://bucket/run", None)])
def test_gcsfs_reads_the_proxy_of_the_environment(monkeypatch, url, expected):
    """The session of aiohttp does so only if it is told to; botocore, behind s3fs, always."""
    fsspec = pytest.importorskip("fsspec", reason="the extra `stores` is not installed")
    given = []
    monkeypatch.setattr(store, "refuse_missing_packages", lambda url, flag: None)
    monkeypatch.setattr(fsspec, "url_to_fs", lambda url, **options: (given.append(options), "root"))
    store.open_files(url, "--train_dir")
    assert given[0].get("session_kwargs") == expected
