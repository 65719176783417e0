"""The columns of plain CSV and of Parquet files, from a JSON file.

    {"label": "click", "numbers": ["price", "age"], "categories": ["site", "device"],
     "columns": ["id", "click", "site", "device", "price", "age"],    by default the first line of the first file
     "header": true, "delimiter": ",", "quotes": true, "log_numbers": false}    the defaults

Of Parquet files, only label, numbers, categories and log_numbers count. Columns that are neither label, number nor
category are ignored. The features are in the order of `numbers` and `categories`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import tensorflow.compat.v1 as tf

from ps_train.errors import DataError
from ps_train.parts.readers.files import open_bytes

from .columns import CATEGORY, IGNORED, LABEL, NUMBER, Column, LineForm, column_names

_DEFAULTS: dict[str, Any] = {"label": "", "numbers": [], "categories": [], "columns": [], "header": True,
                             "delimiter": ",", "quotes": True, "log_numbers": False}
_EXAMPLE = '{"label": "click", "numbers": ["price"], "categories": ["site"]}'


class Schema(NamedTuple):
    """What the files are.

    Attributes:
      form: the columns in the order of the files.
      number_order: the positions, among the number columns of `form`, of the numbers in the order of the schema.
      category_order: the same for the categories.
      has_header: whether the first line of each file has the names of the columns.
      names_columns: whether the schema has these names from there, so that all files must have the same.
      log_numbers: whether the numbers become log(1 + x).
    """

    form: LineForm
    number_order: list[int]
    category_order: list[int]
    has_header: bool
    names_columns: bool
    log_numbers: bool


def read_schema(path: str, first_line: Callable[[], str]) -> Schema:
    """Reads the schema.

    Args:
      first_line: returns the first line of the first data file; called if the schema names no columns.

    Raises:
      DataError: the file is missing or wrong; the error says how.
    """
    values = read_values(path)
    names = values["columns"]
    if not names:
        if not values["header"]:
            raise DataError("schema_malformed", f"{path}: without a header, give \"columns\", the names of all "
                            "columns in their order")
        names = column_names(first_line(), values["delimiter"])
    kinds = {values["label"]: LABEL, **dict.fromkeys(values["numbers"], NUMBER),
             **dict.fromkeys(values["categories"], CATEGORY)}
    missing = [name for name in kinds if names.count(name) != 1]
    if missing:
        hint = "; the names in the file are not UTF-8: convert it" if any("\ufffd" in name for name in names) else ""
        raise DataError("schema_malformed", f"{path}: column {missing[0]!r} is there {names.count(missing[0])} times; "
                        f"expected once among the columns {', '.join(names)}{hint}")
    form = LineForm(tuple(Column(name, kinds.get(name, IGNORED)) for name in names), values["delimiter"],
                    values["quotes"])
    order = {kind: [name for name in names if kinds.get(name) == kind] for kind in (NUMBER, CATEGORY)}
    return Schema(form, [order[NUMBER].index(name) for name in values["numbers"]],
                  [order[CATEGORY].index(name) for name in values["categories"]], values["header"],
                  not values["columns"], values["log_numbers"])


def read_values(path: str) -> Mapping[str, Any]:
    """Returns the values of a schema by name, with the defaults of those that it does not give.

    Raises:
      DataError: it is missing or wrong; the error says how.
    """
    try:
        with open_bytes(path) as file:
            given = json.load(file)
    except (OSError, tf.errors.OpError, ValueError) as error:
        raise DataError("schema_malformed", f"{path}: {getattr(error, 'message', error)}; expected a schema in JSON, "
                        f"such as {_EXAMPLE}") from error
    return _checked(path, given)


def identity(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a model of another schema was not trained on; the others say how files are read."""
    return {"schema_content": {name: values[name] for name in ("label", "numbers", "categories", "log_numbers")}}


def _checked(path: str, given: Any) -> Mapping[str, Any]:
    """Returns the values of a schema, with the defaults of those that are not given.

    Raises:
      DataError: a name is unknown or a value has the wrong type, or something is missing.
    """
    if not isinstance(given, dict):
        raise DataError("schema_malformed", f"{path}: got {type(given).__name__}; expected an object")
    for name, value in given.items():
        default = _DEFAULTS.get(name)
        if default is None:
            raise DataError("schema_malformed", f"{path}: unknown name {name!r}; allowed: {', '.join(_DEFAULTS)}")
        if not isinstance(value, type(default)):
            raise DataError("schema_malformed", f"{path}: {name!r} is {value!r}; expected a value like "
                            f"{json.dumps(default)}")
        if isinstance(value, list) and (wrong := [entry for entry in value if not isinstance(entry, str)]):
            raise DataError("schema_malformed", f"{path}: {name!r} has {json.dumps(wrong[0])}; expected names of "
                            "columns, in quotes")
    values = {**_DEFAULTS, **given}
    features = [values["label"], *values["numbers"], *values["categories"]]
    if not values["label"] or len(features) < 2:
        raise DataError("schema_malformed", f"{path}: expected \"label\", and \"numbers\" or \"categories\", names of "
                        "columns")
    if len(set(features)) < len(features):
        raise DataError("schema_malformed", f"{path}: a column is named twice among label, numbers and categories; "
                        "name each once")
    if len(values["delimiter"].encode()) != 1 or values["delimiter"] in "\"\n\r":
        raise DataError("schema_malformed", f"{path}: \"delimiter\" is {values['delimiter']!r}; expected one character")
    return values
