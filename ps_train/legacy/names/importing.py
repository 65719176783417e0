"""`import tensorflow.contrib.slim as slim`: import statements find what attributes find."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types

from ps_train.errors import MissingModuleError
from ps_train.legacy.names import inside
from ps_train.legacy.names.namespace import Namespace


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the submodules of each Namespace; those that only lie in TensorFlow's folders are left to Python."""

    def find_spec(self, fullname, path=None, target=None):
        """Returns a spec that leads to the submodule, or None for modules that are not below a Namespace.

        Raises:
          MissingModuleError: there is no such submodule. It says what to use instead.
        """
        if today_name(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        parent, _, leaf = fullname.rpartition(".")
        namespace = sys.modules.get(parent)
        if not isinstance(namespace, Namespace):
            return None
        try:
            found = getattr(namespace, leaf)
        except AttributeError as error:
            if importlib.machinery.PathFinder.find_spec(fullname, namespace.__path__):
                return None
            # With a `name`, `from a import b` would drop this text for one of its own.
            raise MissingModuleError(str(error)) from None
        if not isinstance(found, types.ModuleType):
            raise MissingModuleError(f"{fullname} is no module: write from {parent} import {leaf}")
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec):
        """Leaves it to Python to make a module, which `exec_module` exchanges."""
        return None

    def exec_module(self, module):
        """Puts the module that the parent knows, or that has another name today, in place of the new one."""
        today = today_name(module.__name__)
        parent, _, leaf = module.__name__.rpartition(".")
        sys.modules[module.__name__] = (
            importlib.import_module(today) if today else getattr(sys.modules[parent], leaf))


def today_name(fullname: str) -> str | None:
    """Returns today's name of a module in one of inside.PACKAGES, or None."""
    for old, today in inside.PACKAGES.items():
        if fullname == old or fullname.startswith(old + "."):
            return today + fullname.removeprefix(old)
    return None
