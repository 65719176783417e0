"""`input_data.read_data_sets` of the old MNIST tutorial: the project's own reader, data/input_data.py.

Its folder `data/` is found beside the installed package's folder, and is loaded without a trace in `sys.path` and
`sys.modules`: a script may have modules named `data` and `models` of its own.
"""

from __future__ import annotations

import importlib
import pathlib
import sys
import types

from ps_train.errors import MissingDataError

_CHECKOUT = pathlib.Path(__file__).resolve().parents[5]
_PACKAGES = ("data", "models")


def _load_reader() -> types.ModuleType:
    """Returns the project's module data.input_data.

    Raises:
      MissingDataError: ps_train is installed without its `data/`.
    """
    if not (_CHECKOUT / "data/input_data.py").exists():
        raise MissingDataError(f"the tutorial's MNIST reader is not in {_CHECKOUT}",
                               "install ps_train from its source folder: pip install -e <folder>")
    of_script = _take_out()
    sys.path.insert(0, str(_CHECKOUT))
    try:
        return importlib.import_module("data.input_data")
    finally:
        sys.path.remove(str(_CHECKOUT))
        _take_out()
        sys.modules.update(of_script)


def _take_out() -> dict[str, types.ModuleType]:
    """Removes the modules `data` and `models`, and those inside, from `sys.modules`, and returns them."""
    found = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    return {name: sys.modules.pop(name) for name in found}


_READER = _load_reader()
read_data_sets = _READER.read_data_sets
DataSet = _READER.DataSet
dense_to_one_hot = _READER.dense_to_one_hot
