"""The files of pushes: how they are written, and how a reader follows them. docs/fresh_rows.md has the format.

    publish_dir/
      CURRENT                       {"format": 1, "training": ID, "model": "model-0000000120", "model_number": 120,
                                     "last": 135}; replaced as a whole
      model-0000000120/             a live SavedModel with all pushes up to 120
      push-0000000121.tfrecord ...  TFRecord of tf.train.Example

The Examples of a push, in this order; each has the feature `kind`:

    begin    number, previous, training, step, cut_time, and watermark if it is known
    rows     table, dim; ids (int64), rows (float32), dropped (int64): bytes, little-endian; as often as needed
    dense    value: the bytes of all dense variables, by the layout of the model
    end      number; without it the push was not written to its end
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf.message import DecodeError

from ps_train.errors import DataError

FORMAT, CURRENT = 1, "CURRENT"
_NAME = re.compile(r"(?:push-(\d{10})\.tfrecord|model-(\d{10}))")


class Current(NamedTuple):
    """The content of `CURRENT`.

    Attributes:
      training: the ID of the training.
      model: the name of the newest model's folder.
      model_number: the last push that is in it.
      last: the last push.
    """

    training: str
    model: str
    model_number: int
    last: int


class Begin(NamedTuple):
    """The beginning of a push.

    Attributes:
      number: of the push.
      previous: the number that a model must have to take it.
      training: the ID of the training.
      step: the global step.
      cut_secs: when the dense variables were read, in seconds since the epoch.
      watermark_secs: up to which time all data was trained on, in seconds since the epoch; None if that is unknown.
    """

    number: int
    previous: int
    training: str
    step: int
    cut_secs: float
    watermark_secs: Optional[float] = None


class Rows(NamedTuple):
    """Rows of one table: ids int64 [n], rows float32 [n, dim], and the dropped ids int64 [m]."""

    table: str
    ids: np.ndarray
    rows: np.ndarray
    dropped: np.ndarray


class PushError(DataError):
    """A file of a push is damaged, was not written to its end, or is none."""


def push_path(folder: str, number: int) -> str:
    """Returns the path of a push."""
    return os.path.join(folder, f"push-{number:010d}.tfrecord")


def model_name(number: int) -> str:
    """Returns the name of the folder of a model with all pushes up to a number."""
    return f"model-{number:010d}"


def number_in(name: str) -> int | None:
    """Returns the number in the name of a model or a push, None for another name."""
    match = _NAME.fullmatch(name)
    return int(match[1] or match[2]) if match else None


def numbers(folder: str) -> list[int]:
    """Returns the numbers of all models and pushes in a folder, each once, in their order."""
    return sorted({number for number in map(number_in, os.listdir(folder)) if number is not None})


def read_current(folder: str) -> Current | None:
    """Returns what `CURRENT` says; None if it does not exist, is none of this format, or names what cannot be."""
    try:
        with open(os.path.join(folder, CURRENT), encoding="utf-8") as file:
            content = json.load(file)
        current = Current(**{name: content[name] for name in Current._fields})
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    is_sound = (content.get("format") == FORMAT and isinstance(current.training, str)
                and type(current.model_number) is type(current.last) is int  # no bool
                and 0 <= current.model_number <= current.last and current.model == model_name(current.model_number))
    return current if is_sound else None


def current_text(current: Current) -> str:
    """Returns the content of `CURRENT`."""
    return json.dumps({"format": FORMAT, **current._asdict()})


def sync(path: str) -> None:
    """Returns when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_current(folder: str, current: Current) -> None:
    """Replaces `CURRENT`; what it names must be complete, and on the disk."""
    path = os.path.join(folder, CURRENT)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(current_text(current))
        file.flush()
        os.fsync(file.fileno())
    sync(folder)  # the names of the pushes and the model
    os.replace(f"{path}.new", path)


class PushWriter:
    """Writes one push; made by `writing_push`."""

    def __init__(self, path: str) -> None:
        self._writer = tf.io.TFRecordWriter(path)

    def add(self, kind: str, **values: Any) -> None:
        """Writes an Example with this kind and these values: int, float, str or bytes."""
        features = {name: _feature(value) for name, value in {"kind": kind, **values}.items()}
        self._writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())

    def rows(self, table: str, ids: np.ndarray, rows: np.ndarray, dropped: np.ndarray) -> None:
        """Writes rows float32 [n, dim] of ids int64 [n], and dropped ids int64 [m]."""
        self.add("rows", table=table, dim=rows.shape[1], ids=ids.astype("<i8").tobytes(),
                 rows=rows.astype("<f4").tobytes(), dropped=dropped.astype("<i8").tobytes())

    def dense(self, value: bytes) -> None:
        """Writes the bytes of all dense variables."""
        self.add("dense", value=value)

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()


@contextlib.contextmanager
def writing_push(folder: str, begin: Begin) -> Iterator[PushWriter]:
    """Yields a writer of a push, which exists under its name only when the body has ended without an error."""
    path = push_path(folder, begin.number)
    writer = PushWriter(f"{path}.new")
    try:
        watermark = {} if begin.watermark_secs is None else {"watermark": begin.watermark_secs}
        writer.add("begin", number=begin.number, previous=begin.previous, training=begin.training, step=begin.step,
                   cut_time=begin.cut_secs, **watermark)
        yield writer
        writer.add("end", number=begin.number)
        writer.close()
        sync(f"{path}.new")
        os.replace(f"{path}.new", path)
    except BaseException:
        with contextlib.suppress(OSError, tf.errors.OpError):  # of a full disk once more, which needs the room back
            writer.close()
        os.remove(f"{path}.new")
        raise


def _feature(value: Any) -> Any:
    if isinstance(value, float):
        # In text: a float_list has 32 bits, which are some minutes of a time.
        value = repr(value)
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode() if isinstance(value, str) else value]))


def read_push(path: str) -> tuple[Begin, Iterator[Rows | bytes]]:
    """Returns the beginning of a push, and an iterator over its rows and the bytes of the dense variables.

    The whole file is checked first, record by record, so nothing of a damaged one is applied.

    Raises:
      PushError: the file is none of a push, or is damaged, or its end is missing.
      OSError: it cannot be read.
    """
    first: dict[str, Any] = {}
    last, num_records = first, 0
    for record in _examples(path):
        first, last, num_records = first or record, record, num_records + 1
        try:
            _content_of(record)
        except (KeyError, ValueError) as error:
            raise PushError("push_damaged", f"{path} is damaged in record {num_records}: {error}; a publisher that "
                            "is started again replaces it by a new version of the model") from None
    if first.get("kind") != b"begin":
        raise PushError("push_damaged", f"{path} is no push; allowed: a file that `ps_train publish` has written")
    if last["kind"] != b"end" or last["number"] != first["number"]:
        raise PushError("push_damaged", f"{path} was not written to its end; a publisher that is started again "
                        "replaces it by a new version of the model")
    watermark = first.get("watermark")
    begin = Begin(first["number"], first["previous"], first["training"].decode(), first["step"],
                  float(first["cut_time"]), None if watermark is None else float(watermark))
    contents = map(_content_of, _examples(path))
    return begin, (content for content in contents if content is not None)


def _content_of(record: dict[str, Any]) -> Rows | bytes | None:
    """Returns what a record has to apply; None for the first and the last one."""
    if record["kind"] == b"dense":
        return record["value"]
    if record["kind"] != b"rows":
        return None
    ids = np.frombuffer(record["ids"], "<i8")
    rows = np.frombuffer(record["rows"], "<f4").reshape(len(ids), record["dim"])
    return Rows(record["table"].decode(), ids, rows, np.frombuffer(record["dropped"], "<i8"))


def _examples(path: str) -> Iterator[dict[str, Any]]:
    try:
        for record in tf.io.tf_record_iterator(path):
            features = tf.train.Example.FromString(record).features.feature
            yield {name: (feature.int64_list.value or feature.bytes_list.value)[0]
                   for name, feature in features.items()}
    except tf.errors.OpError as error:
        raise PushError("push_damaged", f"{path} cannot be read: {error.message}; a publisher that is started again "
                        "replaces it by a new version of the model") from None
    except (DecodeError, IndexError):  # a TFRecord file of something else: of other Examples, for instance
        raise PushError("push_damaged", f"{path} is no push; allowed: a file that `ps_train publish` has written"
                        ) from None
