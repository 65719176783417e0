"""AutoGraph reads a function's source again, and would find Python 2 in it: `Dataset.map` calls it as it is.

Nothing of that time counts on AutoGraph, which came with TensorFlow 1.14.
"""

from __future__ import annotations

import types

from tensorflow.python.autograph.core import config  # no public place to say what is not to be converted
from tensorflow.python.autograph.core.config_lib import Action

from ps_train.parts.legacy.conversion import MARK


class _Python2:
    def get_action(self, module: types.ModuleType) -> Action:
        """Returns what AutoGraph does with the functions of a module."""
        return Action.DO_NOT_CONVERT if hasattr(module, MARK) else Action.NONE


def leave_python2_alone() -> None:
    """Lets AutoGraph call the functions of converted files, for this whole process."""
    config.CONVERSION_RULES = (_Python2(), *config.CONVERSION_RULES)
