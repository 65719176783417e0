"""TensorFlow as the tests import it: quietly, and in the mode that a task uses.

    from tests.tensorflow_mode import tf
"""

from __future__ import annotations

from ps_train.runtime import installed
from ps_train.tasks import setup

installed.prefer_tf_keras()
installed.import_tensorflow_quietly()

import tensorflow.compat.v1 as tf  # noqa: E402 (after it was made quiet)

setup.prepare_tensorflow(tf_log=False)

__all__ = ["tf"]
