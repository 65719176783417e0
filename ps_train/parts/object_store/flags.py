"""Lets --train_dir be a URL, and checks its form, also that of a path."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
from typing import Any

from ps_train.config import fields
from ps_train.config.folders import local_folder
from ps_train.config.groups import ModelFlags, default_train_dir
from ps_train.errors import ConfigError, Problem, refuse
from ps_train.runtime import tensorflow_errors

# Protocol -> the packages that fsspec needs for it. Other protocols of fsspec work, too, if their packages are there.
_PACKAGES = {"s3": ("s3fs",), "s3a": ("s3fs",), "gs": ("gcsfs",), "gcs": ("gcsfs",), "hdfs": ("pyarrow",),
             "abfs": ("adlfs",), "abfss": ("adlfs",), "az": ("adlfs",), "oss": ("ossfs",)}
_BUCKETS = frozenset(_PACKAGES) - {"hdfs"}  # the first part of such a URL is a bucket, which must exist
_READ_ONLY = ("http", "https")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.DOTALL)


def protocol_of(url: str) -> str:
    """Returns the protocol of a URL, such as "s3"; "" if it is a path."""
    match = _URL.fullmatch(url)
    return match[1] if match else ""


def check_location(flag: str, value: str) -> None:
    """Checks the form of a train_dir: a path, or the URL of a folder in a store.

    Raises:
      ConfigError: it is a URL of another form; the error names `flag`, and repeats no password.
    """
    fields.refuse_password(flag, value)
    match = _URL.fullmatch(value)
    if match is None:
        if "://" in value:
            raise ConfigError("url_malformed", f"{flag}: got {value!r}; allowed: a path, or a URL such as "
                              "s3://bucket/run")
        return
    protocol, place, path = match.groups()
    if protocol in _READ_ONLY:
        raise ConfigError("url_malformed", f"{flag}: got a URL of {protocol}, which nothing can be written to; give "
                          "that of a store, such as s3://bucket/run")
    if protocol in _BUCKETS and not place:
        raise ConfigError("url_malformed", f"{flag}: got {value!r}, which has no bucket; give one: "
                          f"{protocol}://bucket/run")
    if protocol in _BUCKETS and not path.strip("/"):
        raise ConfigError("url_malformed", f"{flag}: got {value!r}, a whole bucket; give a folder in it, as in "
                          f"{value.rstrip('/')}/run")


def refuse_missing_packages(url: str, flag: str = "--train_dir") -> None:
    """Raises ConfigError, with the command that helps, if a package that the URL needs is not installed."""
    needed = ("fsspec", *_PACKAGES.get(protocol_of(url), ()))
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        more = "".join(f" {name}" for name in needed[1:])
        refuse([Problem("package_missing", f"{flag}={url} needs {' and '.join(missing)}: `pip install "
                        f"'ps_train[stores]'{more}`")])


@dataclasses.dataclass(frozen=True)
class StoreFlags:
    """Where a training with a URL as its --train_dir works.

    Attributes:
      train_url: the URL, in a task whose train_dir is the folder on its machine; otherwise "".
      uploads: in the chief, the `part.Uploads`; otherwise None.
      evaluations: in an evaluator, the `evaluator.StoreEvaluations`; otherwise None.
    """

    # Config has the spine's declaration as well; this rule counts there, as a part's flags are the last base. Verbs
    # that copy the flag from Config or ModelFlags still refuse a URL.
    train_dir: str = fields.redeclare(
        ModelFlags, "train_dir", help="Folder for checkpoints and summaries, or its URL in a store; a second run "
        "continues from it.", unit="path or URL", is_path=False, form=check_location)
    train_url: str = ""
    uploads: Any = None
    evaluations: Any = None

    def part_problems(self, config: Any) -> list[Problem]:
        """Returns the problem of a folder in which a graph training could not read its checkpoints."""
        folder = local_folder(self.train_dir or default_train_dir(config.model))
        folder = os.path.abspath(folder) if config.existing_servers else folder
        problem = tensorflow_errors.problem_of_path(folder)
        return [Problem("path_is_pattern", f"--train_dir: got {folder!r}; {problem}")] if problem else []
