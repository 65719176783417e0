"""The columns of delimited text: parses lines in the graph, many at once, and finds the faults of a line."""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

LABEL, NUMBER, CATEGORY, IGNORED = "label", "number", "category", "ignored"

# What tf.io.decode_csv accepts as a float32, but for NaN and infinity. It skips line breaks before a field.
_NUMBER = r"[ \t\v\f]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t\v\f]*"
_PATTERNS = {LABEL: rf"[\r\n]*{_NUMBER}", NUMBER: rf"[\r\n]*({_NUMBER})?"}
_TEXT, _QUOTELESS_TEXT = r"[\r\n]*[^\r\n]*", r'[\r\n]*[^\r\n"]*'
_EXPECTED = {LABEL: "0 or 1", NUMBER: "a number or nothing"}
_SHOWN_CHARS = 40


class Column(NamedTuple):
    """A column.

    Attributes:
      name: its name in errors.
      kind: LABEL, NUMBER (may be missing), CATEGORY (may be missing) or IGNORED.
    """

    name: str
    kind: str


class Cells(NamedTuple):
    """The values of n lines.

    Attributes:
      labels: float32 [n], 0 or 1.
      numbers: float32 [n, num_numbers], 0 where missing.
      categories: string [n] for each category, "" where missing.
    """

    labels: tf.Tensor
    numbers: tf.Tensor
    categories: Sequence[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class LineForm:
    """The form of the lines of a file.

    Attributes:
      columns: one LABEL, the others in the order of the file.
      delimiter: one character.
      has_quotes: whether a field may stand in double quotes, and then contain the delimiter.
    """

    columns: tuple[Column, ...]
    delimiter: str
    has_quotes: bool = False

    def parse(self, lines: tf.Tensor) -> Cells:
        """Returns the values of lines, string [n]; the op fails if one of them is malformed."""
        kinds = [column.kind for column in self.columns]
        # All columns, without `select_cols`, with which decode_csv takes lines that have too many.
        fields = tf.io.decode_csv(
            lines, [[] if kind == LABEL else [0.0] if kind == NUMBER else [""] for kind in kinds],
            field_delim=self.delimiter, use_quote_delim=self.has_quotes)
        by_kind = {kind: [field for field, its_kind in zip(fields, kinds) if its_kind == kind]
                   for kind in (LABEL, NUMBER, CATEGORY)}
        labels = by_kind[LABEL][0]
        numbers = tf.stack(by_kind[NUMBER], axis=1) if by_kind[NUMBER] else tf.zeros([tf.size(lines), 0])
        # As in `find_faults`. Not tf.Assert, which would put it into a cond.
        is_sound = tf.reduce_all(_is_zero_or_one(labels)) & tf.reduce_all(tf.math.is_finite(numbers))
        check = tf.raw_ops.Assert(condition=is_sound, data=["a label that is not 0 or 1, or a number out of range"])
        with tf.control_dependencies([check]):
            return Cells(tf.identity(labels), numbers, by_kind[CATEGORY])

    def find_faults(self, lines: tf.Tensor) -> tf.Tensor:
        """Returns the fault of each line, string [n]; "" for a line that `parse` takes."""
        lines = _readable(lines)  # regular expressions match UTF-8 only, and `parse` takes any bytes
        fields = tf.strings.split(self._unquoted(lines), self.delimiter, result_type="RaggedTensor")
        num_columns = len(self.columns)
        table = fields.to_tensor(default_value="", shape=[None, num_columns])
        kinds = [column.kind for column in self.columns]
        is_open = tf.strings.regex_full_match(lines, r"(?s).*[\r\n]")  # its last field has a line break behind it
        in_last = tf.equal(tf.range(num_columns), num_columns - 1)
        is_bad = tf.logical_not(_are_sound(table, kinds, self._text)) | (is_open[:, tf.newaxis] & in_last)
        first = tf.argmax(tf.cast(is_bad, tf.uint8), axis=1)
        cell = tf.strings.substr(tf.gather(table, first, batch_dims=1), 0, _SHOWN_CHARS, unit="UTF8_CHAR")
        text = f"text without {'quotes or ' if self.has_quotes else ''}line breaks"
        fault = tf.strings.join(["column ", tf.gather([column.name for column in self.columns], first), ": expected ",
                                 tf.gather([_EXPECTED.get(kind, text) for kind in kinds], first), ", got '", cell, "'"])
        faults = tf.where(tf.reduce_any(is_bad, axis=1), fault, tf.zeros_like(lines))
        num_fields = tf.cast(fields.row_lengths(), tf.int32)
        wrong_number = tf.strings.join([tf.strings.as_string(num_fields), f" fields; expected {num_columns}: {self}"])
        return tf.where(tf.equal(num_fields, num_columns), faults, wrong_number)

    @property
    def _text(self) -> str:
        """The pattern of a category without the quotes around it."""
        return _QUOTELESS_TEXT if self.has_quotes else _TEXT

    def _unquoted(self, lines: tf.Tensor) -> tf.Tensor:
        """Returns lines without quotes; a quoted field with the delimiter, quotes or line breaks becomes `quoted`.

        A line whose quotes are malformed stays as it is.
        """
        if not self.has_quotes:
            return lines
        delimiter = _in_brackets(self.delimiter)
        field = rf'[\r\n]*("([^"]|"")*"|[^"{delimiter}]*)'
        unquoted = lines
        for pattern, replacement in (
                (rf'(^|[{delimiter}])[\r\n]+"', r'\1"'),
                # In quotes a line break is a blank like others, next to a number, too.
                (r'[\r\n]+"', '\v"'),
                (rf'(^|[{delimiter}])"[\r\n]+', '\\1"\v'),
                (rf'(^|[{delimiter}])"[^"]*([{delimiter}\r\n]|"")([^"]|"")*"', r"\1quoted"),
                (rf'(^|[{delimiter}])"([^"]*)"', r"\1\2")):
            unquoted = tf.strings.regex_replace(unquoted, pattern, replacement)
        is_sound = tf.strings.regex_full_match(lines, rf"{field}([{delimiter}]{field})*")
        return tf.where(is_sound, unquoted, lines)

    def __str__(self) -> str:
        """The columns, for errors: "label, 13 numbers, 26 categories, separated by tabs"."""
        parts: list[list] = []
        for column in self.columns:
            if parts and parts[-1][0] == column.kind:
                parts[-1][1] += 1
            else:
                parts.append([column.kind, 1])
        names = [kind if num == 1 else f"{num} {_PLURAL[kind]}" for kind, num in parts]
        return f"{', '.join(names)}, separated by {_SEPARATORS.get(self.delimiter, repr(self.delimiter))}"


def column_names(header: str, delimiter: str) -> list[str]:
    """Returns the names of the columns in the first line of a file."""
    return next(csv.reader([header], delimiter=delimiter), [])


_PLURAL = {LABEL: "labels", NUMBER: "numbers", CATEGORY: "categories", IGNORED: "ignored"}
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "blanks"}


def _is_zero_or_one(labels: tf.Tensor) -> tf.Tensor:
    return tf.equal(labels, 0.0) | tf.equal(labels, 1.0)


def _are_sound(table: tf.Tensor, kinds: Sequence[str], text: str) -> tf.Tensor:
    """Returns which cells of a table, string [n, columns], have the form of the kind of their column.

    Args:
      text: the pattern of a cell that is neither label nor number.
    """
    sound_columns: list[Any] = [None] * len(kinds)
    for kind in set(kinds):
        columns = [index for index, its_kind in enumerate(kinds) if its_kind == kind]
        are_sound = _is_sound(tf.gather(table, columns, axis=1), kind, text)
        for index, is_sound in zip(columns, tf.unstack(are_sound, axis=1)):
            sound_columns[index] = is_sound
    return tf.stack(sound_columns, axis=1)


def _is_sound(cells: tf.Tensor, kind: str, text: str) -> tf.Tensor:
    """Returns which cells have the form of a kind."""
    matches = tf.strings.regex_full_match(cells, _PATTERNS.get(kind, text))
    if kind not in _PATTERNS:
        return matches
    cells = tf.strings.strip(cells)
    has_value = matches & tf.not_equal(cells, "")
    values = tf.strings.to_number(tf.where(has_value, cells, tf.fill(tf.shape(cells), "0")))
    return matches & (_is_zero_or_one(values) if kind == LABEL else tf.math.is_finite(values))


def _readable(text: tf.Tensor) -> tf.Tensor:
    return tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")


def _in_brackets(delimiter: str) -> str:
    """Returns the delimiter as it is written in brackets in a regular expression."""
    return "\\" + delimiter if delimiter in "]^-\\" else delimiter
