"""Turns --params into the `params` dict of each plug-in.

    shared values of flags  <  the plug-in's DEFAULT_PARAMS  <  --params=name=value,...     (the last one wins)

A value is converted to the type of the default that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ps_train.errors import ConfigError
from ps_train.plugins.contracts import Plugin

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_PARSERS: dict[type, Callable[[str], Any]] = {
    bool: lambda text: _BOOLEANS[text.lower()], int: int, float: float, str: str}


def can_be_set(kind: type) -> bool:
    """Returns whether --params can set a parameter of this type."""
    return kind in _PARSERS


def resolve_params(text: str, plugins: Sequence[Plugin], shared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the `params` of each plug-in: the shared values, its defaults, and over them the values of --params.

    Args:
      text: "name=value,..." of --params; "" for none.
      plugins: the plug-ins; their DEFAULT_PARAMS determine the names that are allowed and the type of each.
      shared: the values that every plug-in gets, which have their own flags.

    Raises:
      ConfigError: no plug-in has a parameter of that name (the error lists the names), a value has the wrong type,
        or a plug-in has a parameter with the name of a flag.
    """
    texts = split_params("--params", text)
    for plugin in plugins:
        for name in plugin.default_params.keys() & shared.keys():
            raise ConfigError("parameter_is_flag", f"{plugin.name}.DEFAULT_PARAMS has {name!r}, which has its own "
                              f"flag; leave it out: params has the value of --{name}")
    known = sorted({name for plugin in plugins for name in plugin.default_params})
    for name in texts:
        if name in shared:
            raise ConfigError("parameter_is_flag", f"--params: {name!r} has its own flag; give --{name}={texts[name]}")
        if name not in known:
            owners = " and ".join(plugin.name for plugin in plugins)
            raise ConfigError("parameter_unknown", f"--params: unknown parameter {name!r}; known to {owners}: "
                              f"{', '.join(known) or 'none'}")
    return [{**shared, **plugin.default_params, **_parse(texts, plugin)} for plugin in plugins]


def split_params(source: str, text: str) -> dict[str, str]:
    """Returns name -> text of the value of "name=value,..."; `source` names that list in errors.

    Raises:
      ConfigError: an item is not name=value, or a name is given twice.
    """
    texts: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name:
            raise ConfigError("flag_malformed", f"{source}: got {item!r}; allowed: name=value,name=value")
        if name in texts:
            raise ConfigError("parameter_given_twice", f"{source}: {name!r} is given twice; give it once")
        texts[name] = value
    return texts


def _parse(texts: Mapping[str, str], plugin: Plugin) -> dict[str, Any]:
    """Returns the values for the plug-in, each converted to the type of its default."""
    values = {}
    for name in texts.keys() & plugin.default_params.keys():
        kind = type(plugin.default_params[name])
        try:
            values[name] = _PARSERS[kind](texts[name])
        except (ValueError, KeyError):
            raise ConfigError("parameter_malformed", f"--params: {name}={texts[name]!r}; allowed: {kind.__name__}, as "
                              f"in {plugin.name}'s default {plugin.default_params[name]!r}") from None
    return values
