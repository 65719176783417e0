"""What `pkg_resources` says of TensorFlow's version: scripts ask it for DeepRec's before they use DeepRec's names.

    import pkg_resources
    if "deeprec" not in pkg_resources.get_distribution("Tensorflow").version: raise ...

The version stays that of TensorFlow, of which scripts may take the numbers. Only if one asks whether it has "deeprec"
does it say yes. pkg_resources comes with older versions of setuptools; without it there is a module with this function.
"""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any, Callable

_MODULE, _PACKAGE, _WORD = "pkg_resources", "tensorflow", "deeprec"


class DeepRecVersion(str):
    """The version of TensorFlow, which also has the word "deeprec"."""

    __slots__ = ()

    def __contains__(self, text: str) -> bool:
        return text.lower() == _WORD or super().__contains__(text)


class Distribution:
    """TensorFlow as it is installed, with that version."""

    def __init__(self, installed: Any) -> None:
        self._installed = installed
        self.version = DeepRecVersion(installed.version)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._installed, name)


def of_deeprec(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns `get_distribution` whose TensorFlow has DeepRec's version; `original` is asked for other packages."""
    def get_distribution(name: Any) -> Any:
        is_tensorflow = str(name).lower() == _PACKAGE
        return Distribution(importlib.metadata.distribution(_PACKAGE)) if is_tensorflow else original(name)

    return get_distribution


class _Loader:
    """Runs the module, if it is installed, and then replaces its function."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: Any) -> types.ModuleType | None:
        return self._loader.create_module(spec) if self._loader else None

    def exec_module(self, module: types.ModuleType) -> None:
        if self._loader:
            self._loader.exec_module(module)
        module.get_distribution = of_deeprec(getattr(module, "get_distribution", importlib.metadata.distribution))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class VersionFinder:
    """Finds `pkg_resources`, which is imported when a script asks for it: that takes half a second."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """Returns the spec of the module."""
        if name != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None:
            return importlib.util.spec_from_loader(name, _Loader(None))
        spec.loader = _Loader(spec.loader)
        return spec


def install_version() -> None:
    """Replaces `pkg_resources.get_distribution`."""
    if _MODULE in sys.modules:
        module = sys.modules[_MODULE]
        module.get_distribution = of_deeprec(module.get_distribution)
    else:
        sys.meta_path.insert(0, VersionFinder())
