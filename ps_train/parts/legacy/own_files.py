"""Which files are the user's own? Not those of packages, wherever they are installed.

    site-packages                               what `pip install` has installed
    a folder with *.dist-info on the path       what `pip install --target`, or PYTHONPATH, has there
    data, models                                beside ps_train in a checkout
"""

from __future__ import annotations

import functools
import pathlib
import sys

import ps_train
from ps_train.runtime import tracebacks

CHECKOUT = pathlib.Path(ps_train.__file__).resolve().parents[1]
# Packages beside ps_train in a checkout, which its stand-in for the tutorials' MNIST imports.
_BESIDE = [CHECKOUT / name for name in ("data", "models")]


def is_own(path: str) -> bool:
    """Returns whether a file is the script's or a local module's."""
    return tracebacks.is_local(path) and not is_of_a_package(pathlib.Path(path))


def is_of_a_package(path: pathlib.Path) -> bool:
    """Returns whether a file belongs to ps_train's checkout, or to a folder that `pip install --target` has filled."""
    return any(folder in path.parents for folder in _BESIDE) or any(
        _has_packages(folder) for folder in sys.path if pathlib.Path(folder) in path.parents)


@functools.cache
def _has_packages(folder: str) -> bool:
    return any(pathlib.Path(folder).glob("*.dist-info"))
