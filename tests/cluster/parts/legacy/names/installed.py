"""This process with the names of TF1: importing this changes it for good, so only a child process may.

    from tests.cluster.parts.legacy.names.installed import real, tf
"""

from __future__ import annotations

import os
import sys

os.environ.update(TF_USE_LEGACY_KERAS="1", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import tensorflow.compat.v1 as real

from ps_train.parts.legacy import estimator, names

real.disable_v2_behavior()
real.enable_resource_variables()
real.logging.set_verbosity(real.logging.ERROR)
estimator.install_estimator()
names.install()
names.install()  # the second call does nothing
tf = sys.modules["tensorflow"]

__all__ = ["real", "tf"]
