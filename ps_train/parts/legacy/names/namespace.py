"""Modules that look their names up in tables, then in TensorFlow: `tf`, `tf.train`, `tf.contrib.layers` and so on.

A name that is missing is an error of one line: the name, the line of the script, and what to use instead.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import importlib.util
import pathlib
import pkgutil
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ps_train.errors import MissingNameError
from ps_train.parts.legacy.names.missing import MissingName

_ABSENT = object()
# The modules in which TensorFlow, Keras 2 and the Estimator keep their public names.
_PUBLIC_MODULES = ("tensorflow._api.", "tensorflow.compat.", "tf_keras.api.", "keras.api.", "keras._tf_keras.",
                   "tensorflow_estimator.python.estimator.api.")


@dataclasses.dataclass(frozen=True)
class Tables:
    """The names that TensorFlow no longer has.

    Attributes:
      names: name in TF1 -> what it is today: a name in TF1 too ("tf.multiply"), or any Python object
        ("tf_slim.layers:batch_norm").
      modules: module in TF1 -> the modules in which its names are looked up, written in the same way.
      advice: name or module that is missing -> what to use instead.
    """

    names: Mapping[str, str]
    modules: Mapping[str, tuple[str, ...]]
    advice: Mapping[str, str]

    def with_parents(self) -> Tables:
        """Returns the same tables, in which the parent modules of each name have an entry."""
        parents = {full.rpartition(".")[0] for full in (*self.names, *self.modules)}
        while parents:
            new = {parent: () for parent in parents if parent != "tf" and parent not in self.modules}
            self = dataclasses.replace(self, modules={**self.modules, **new})
            parents = {parent.rpartition(".")[0] for parent in new}
        return self


class Namespace(types.ModuleType):
    """A module of TF1's names. `import` statements and attributes find the same."""

    def __init__(
        self, public: str, tables: Tables, modules: tuple[types.ModuleType, ...] = (), root: Any = None
    ) -> None:
        """Makes a module.

        Args:
          public: its name as scripts write it, such as "tf.train".
          tables: where names are looked up first.
          modules: the modules of TensorFlow where they are looked up then.
          root: the Namespace of `tf`; this one by default.
        """
        super().__init__("tensorflow" + public.removeprefix("tf"))
        super().__dict__.update(
            __path__=[], _public=public, _tables=tables, _modules=modules, _root=root or self, _children={})

    @property
    def __dict__(self) -> Mapping[str, Any]:  # type: ignore[override]
        """All names, also those that are looked up: scripts write `tf.logging.__dict__["INFO"]`."""
        return _Names(self, super().__dict__)

    def __getattr__(self, leaf: str) -> Any:
        if leaf == "__all__":
            return [name for name in dir(self)
                    if not name.startswith("_") and hasattr(self, name) and not self._is_import(name)]
        if leaf.startswith("__"):
            raise AttributeError(leaf)
        full = f"{self._public}.{leaf}"
        if full in self._tables.names:
            target = self._tables.names[full]
            try:
                return resolve(target, self._root)
            except (ImportError, AttributeError) as error:
                raise name_error(full, (target,), self._tables.advice) from error
        value = self._look_up(leaf)
        if _is_public_module(value):
            return self._child(leaf, (value,))
        if full in self._tables.modules:  # before a function of that name, such as tf.nn.rnn
            return self._child(leaf, ())
        if value is not _ABSENT:
            return value
        raise name_error(full, self._tables.modules.get(self._public, ()), self._tables.advice)

    def __setattr__(self, leaf: str, value: Any) -> None:
        # The import system sets each submodule that it has imported. What can be looked up must stay so: TensorFlow,
        # or another part of ps_train, may still change it. And what is missing stays so.
        if isinstance(value, MissingName):
            return
        if not isinstance(value, types.ModuleType) or getattr(self, leaf, None) is not value:
            super().__setattr__(leaf, value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function of the module's own name: `from ...python.ops import arg_scope` meant that in TF1."""
        function = getattr(self, self._public.rpartition(".")[2], None)
        if not isinstance(function, types.FunctionType):
            raise TypeError(f"'module' object is not callable: {self._public}")
        return function(*args, **kwargs)

    def missing(self, leaf: str) -> MissingName:
        """Returns what stands for a name that is not there."""
        return MissingName(f"{self.__name__}.{leaf}", lambda: name_error(
            f"{self._public}.{leaf}", self._tables.modules.get(self._public, ()), self._tables.advice))

    def __dir__(self) -> list[str]:
        tables = (*self._tables.names, *self._tables.modules)
        leaves = {full.rpartition(".")[2] for full in tables if full.rpartition(".")[0] == self._public}
        return sorted(leaves.union(super().__dict__, *(dir(module) for module in self._sources())))

    def _sources(self) -> list[Any]:
        """Returns the modules in which names are looked up; those that are not installed are left out."""
        named = self._tables.modules.get(self._public, ())
        return [*self._modules, *(source for source in (self._try(name) for name in named) if source is not _ABSENT)]

    def _look_up(self, leaf: str) -> Any:
        values = (getattr(source, leaf, _ABSENT) for source in self._sources())
        return next((value for value in values if value is not _ABSENT), _ABSENT)

    def _is_import(self, leaf: str) -> bool:
        """Returns whether a name is what a module of ps_train imports: `import *` would replace the script's `tf`."""
        if f"{self._public}.{leaf}" in self._tables.names:
            return False
        source = next((source for source in self._sources() if hasattr(source, leaf)), None)
        if source is None or not source.__name__.startswith("ps_train."):
            return False
        value = getattr(source, leaf)
        return isinstance(value, types.ModuleType) or getattr(value, "__module__", source.__name__) != source.__name__

    def _child(self, leaf: str, modules: tuple[types.ModuleType, ...]) -> Namespace:
        """Returns the Namespace of a submodule; a new one if TensorFlow's own module was exchanged."""
        known = self._children.get(leaf)
        if known is None or known.__dict__["_modules"] != modules:
            known = self._children[leaf] = Namespace(f"{self._public}.{leaf}", self._tables, modules, self._root)
        return known

    def _try(self, target: str) -> Any:
        try:
            return resolve(target, self._root)
        except (ImportError, AttributeError):
            return _ABSENT


def resolve(target: str, root: Any) -> Any:
    """Returns what an entry of a table names; `root` is the Namespace of `tf`."""
    if not target.startswith("tf."):
        return pkgutil.resolve_name(target)
    return functools.reduce(getattr, target.split(".")[1:], root)


class _Names(Mapping[str, Any]):
    """The names of a Namespace with their values, each looked up when it is asked for: absl asks for all `__dict__`."""

    def __init__(self, namespace: Namespace, own: Mapping[str, Any]) -> None:
        self._namespace, self._own = namespace, own

    def __getitem__(self, leaf: str) -> Any:
        try:
            return self._own[leaf] if leaf in self._own else getattr(self._namespace, leaf)
        except AttributeError:
            raise KeyError(leaf) from None

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *(leaf for leaf in self._namespace.__all__ if leaf not in self._own)])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _is_public_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and not isinstance(value, Namespace) and (
        value.__name__ + ".").startswith(_PUBLIC_MODULES)


# Package -> its name, the extra that installs it, and the beginnings of the entries of the tables that need it.
_NEEDS = {
    "tf_slim": ("TF-Slim", "legacy", ("tf_slim", "tf.contrib.slim", "ps_train.parts.legacy.names.losses")),
    "tf_keras": ("Keras 2", "legacy", ("tf.nn.rnn_cell", "tf.layers")),
    "tensorflow_estimator": ("the Estimator", "estimator", (
        "tf.estimator", "tensorflow_estimator", "ps_train.parts.legacy.names.learn",
        "ps_train.parts.legacy.names.run_config", "ps_train.parts.legacy.names.estimators",
        "ps_train.parts.legacy.names.heads", "ps_train.parts.legacy.names.time_series")),
    "tensorboard": ("TensorBoard", "tensorboard", ("tensorboard",)),
}
_PACKAGE = pathlib.Path(__file__).resolve().parents[3]
_LIBRARIES = ("tensorflow", "keras", "tf_keras", "tf_slim", "tensorflow_estimator", "absl", "six")


def name_error(full: str, targets: Sequence[str], advice: Mapping[str, str]) -> MissingNameError:
    """Returns the error for a name that was not found.

    Args:
      full: the name as the script writes it, such as "tf.contrib.crf.crf_log_likelihood".
      targets: the entries of the tables that should have led to it, which may need a package.
      advice: missing name, or a module above it -> what to use instead.
    """
    hint = _package_hint((full, *targets)) or _longest(full, advice) or "ps_train has no stand-in for it"
    return MissingNameError("tf_name_missing", f"{full} is not in TensorFlow {_version()} ({script_line()}): {hint}")


def script_line() -> str:
    """Returns "file:line" of the innermost frame that is neither ps_train's nor TensorFlow's."""
    frame = sys._getframe(1)  # noqa: SLF001 (the only way to the frames without their source text)
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown line"


def _is_ours(filename: str) -> bool:
    path = pathlib.Path(filename)
    return filename.startswith("<frozen ") or _PACKAGE in path.parents or any(
        first in ("site-packages", "dist-packages") and second in _LIBRARIES
        for first, second in zip(path.parts, path.parts[1:]))


def _package_hint(names: Sequence[str]) -> str | None:
    for name in names:
        for package, (title, extra, beginnings) in _NEEDS.items():
            if name.startswith(beginnings) and not _is_there(package):
                return f"it needs {title}: pip install 'ps_train[{extra}]'"
    return None


def _is_there(package: str) -> bool:
    if package == "tensorflow_estimator":
        # Without ps_train's bridge the package cannot be imported on TensorFlow 2.16 and later.
        return hasattr(sys.modules.get("tensorflow.compat.v1"), "estimator")
    return importlib.util.find_spec(package) is not None


def _longest(full: str, table: Mapping[str, str]) -> str | None:
    """Returns the entry of a name or of the nearest module above it."""
    while full:
        if full in table:
            return table[full]
        full = full.rpartition(".")[0]
    return None


def _version() -> str:
    # `__version__` of TensorFlow is not read here: its place is taken by a stand-in.
    for package in ("tensorflow", "tensorflow-cpu"):
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "2"
