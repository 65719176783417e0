"""tf.contrib.training.HParams: named values whose type is that of the default, read from `name=value,...`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_PAIR = re.compile(r"\s*(?P<name>[a-zA-Z][\w.]*)(?:\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
                   r"(?:\[(?P<list>[^\]]*)\]|(?P<value>[^,\[]*))\s*(?:,|$)")


def parse_values(values: str, type_map: Mapping[str, type], ignore_unknown: bool = False) -> dict[str, Any]:
    """Parses `name=value` pairs.

    Args:
      values: such as "rate=0.1,layers=[8,8],layers[1]=4"; the last value of a name counts.
      type_map: name -> the type of its value, or of the elements of its list.
      ignore_unknown: whether names without a type are left out.

    Returns:
      name -> value, list of values, or {index: value}.

    Raises:
      ValueError: a pair is malformed, its name unknown, or its value of another type.
    """
    parsed: dict[str, Any] = {}
    position = 0
    while position < len(values):
        pair = _PAIR.match(values, position)
        if pair is None:
            raise ValueError(f"Malformed hyperparameter value: {values[position:]}")
        position = pair.end()
        name = pair["name"]
        if name in type_map:
            _set_parsed(parsed, pair, type_map[name])
        elif not ignore_unknown:
            raise ValueError(f"Unknown hyperparameter: {name}; known are {', '.join(sorted(type_map))}")
    return parsed


def _set_parsed(parsed: dict[str, Any], pair: re.Match, kind: type) -> None:
    name = pair["name"]
    if pair["index"] is not None:
        if not isinstance(parsed.setdefault(name, {}), dict):
            parsed[name] = dict(enumerate(parsed[name]))
        parsed[name][int(pair["index"])] = _convert(name, pair["value"] or "", kind)
    elif pair["list"] is not None:
        parsed[name] = [_convert(name, item, kind) for item in re.split("[ ,]+", pair["list"].strip()) if item]
    else:
        parsed[name] = _convert(name, pair["value"].strip(), kind)


def _convert(name: str, value: Any, kind: type) -> Any:
    """Returns a value as the type of its hyperparameter; raises ValueError if it is of another type."""
    if value is None or kind in (type(None), type(value)):  # a function, say, stays the object that it is
        return value
    if kind is bool:
        known = {"true": True, "false": False, "1": True, "0": False, "True": True, "False": False}
        if str(value) in known:
            return known[str(value)]
    elif kind is str or not isinstance(value, bool):
        try:
            converted = kind(value)
        except (TypeError, ValueError):
            converted = None
        # 0.5 is no integer, though int(0.5) works.
        if converted is not None and (kind is not int or isinstance(value, str) or converted == value):
            return converted
    raise ValueError(f"Could not parse hparam '{name}' of type '{kind.__name__}' with value '{value}'")


class HParams:
    """Named values. Each is an attribute too, and keeps the type of its first value."""

    def __init__(self, hparam_def: Any = None, model_structure: Any = None, **values: Any) -> None:
        """Takes the names and values; raises ValueError if a name is that of a method."""
        if hparam_def is not None:
            raise ValueError("HParams(hparam_def=...): the protocol buffer HParamDef no longer exists; use parse_json")
        self._types: dict[str, tuple[type, bool]] = {}
        self._model_structure = model_structure
        for name, value in values.items():
            self.add_hparam(name, value)

    def add_hparam(self, name: str, value: Any) -> None:
        """Adds a value; the type of a list is that of its first element."""
        if getattr(self, name, None) is not None:
            raise ValueError(f"Hyperparameter name is reserved: {name}")
        is_list = isinstance(value, (list, tuple))
        if is_list and not value:
            raise ValueError(f"Multi-valued hyperparameters cannot be empty: {name}")
        self._types[name] = (type(value[0]) if is_list else type(value), is_list)
        setattr(self, name, value)

    def set_hparam(self, name: str, value: Any) -> None:
        """Replaces a value; raises KeyError for an unknown name, and ValueError for another type, or list or not."""
        kind, is_list = self._types[name]
        if isinstance(value, (list, tuple)) != is_list:
            raise ValueError(f"Must {'pass' if is_list else 'not pass'} a list for parameter: {name}")
        setattr(self, name, [_convert(name, item, kind) for item in value] if is_list else _convert(name, value, kind))

    def del_hparam(self, name: str) -> None:
        """Removes a value, if the name has one."""
        if self._types.pop(name, None):
            delattr(self, name)

    def parse(self, values: str) -> HParams:
        """Replaces values by those of `name=value` pairs, see `parse_values`."""
        for name, value in parse_values(values, {name: kind for name, (kind, _) in self._types.items()}).items():
            if isinstance(value, dict):
                items = list(getattr(self, name))
                for index, item in value.items():
                    items[index] = item
                value = items
            self.set_hparam(name, value)
        return self

    def override_from_dict(self, values_dict: Mapping[str, Any]) -> HParams:
        """Replaces the values that a dictionary has."""
        for name, value in values_dict.items():
            self.set_hparam(name, value)
        return self

    set_from_map = override_from_dict

    def parse_json(self, values_json: str) -> HParams:
        """Replaces the values that a JSON object has."""
        return self.override_from_dict(json.loads(values_json))

    def to_json(self, indent: int | None = None, separators: Any = None, sort_keys: bool = False) -> str:
        """Returns the values as a JSON object; callables are left out."""
        values = {name: value for name, value in self.values().items() if not callable(value)}
        return json.dumps(values, indent=indent, separators=separators, sort_keys=sort_keys)

    def values(self) -> dict[str, Any]:
        """Returns name -> value."""
        return {name: getattr(self, name) for name in self._types}

    def get(self, key: str, default: Any = None) -> Any:
        """Returns a value, or the default if the name is unknown."""
        return getattr(self, key) if key in self._types else default

    def set_model_structure(self, model_structure: Any) -> None:
        """Keeps any object."""
        self._model_structure = model_structure

    def get_model_structure(self) -> Any:
        """Returns the object that was kept."""
        return self._model_structure

    def __contains__(self, key: str) -> bool:
        return key in self._types

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.values().items())

    def __repr__(self) -> str:
        return f"HParams({sorted(self.values().items())})"
