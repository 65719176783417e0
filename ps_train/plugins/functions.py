"""Names for the modules and functions that a program gives as plug-ins, by which the tasks import them."""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Callable

from ps_train.errors import ConfigError

_FUNCTIONS = {"model": "model_fn", "dataset": "input_fn"}


def plugin_name(flag: str, plugin: str | types.ModuleType | Callable | None) -> str | None:
    """Returns the dotted name of a plug-in; None for None.

    Args:
      flag: "model" or "dataset".
      plugin: a name, a module, or the module's model_fn or input_fn.

    Raises:
      ConfigError: the tasks cannot import it.
    """
    if plugin is None or isinstance(plugin, str):
        return plugin
    name = plugin.__name__ if isinstance(plugin, types.ModuleType) else getattr(plugin, "__module__", None)
    function = _FUNCTIONS[flag]
    module = sys.modules.get(name or "")
    if module is None or not (plugin is module or plugin is getattr(module, function, None)) or name == "__main__":
        raise ConfigError("plugin_not_importable", f"--{flag}: got {plugin!r}, which the tasks cannot import; put it "
                          f"into a module as {function}, and give the module")
    return name


def import_path() -> str:
    """Returns the folders, as PYTHONPATH has them, from which this program imports and another Python would not."""
    known = tuple({sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()})
    folders = [os.path.abspath(path) for path in sys.path if path and os.path.isdir(path)]
    return os.pathsep.join(dict.fromkeys(
        path for path in folders if path != os.getcwd() and not path.startswith(known)))
