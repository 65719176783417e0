"""Estimator on TensorFlow 2.16 and later, which no longer contains it. Start with `bridge.py`.

    bridge        makes the package tensorflow-estimator importable, and puts it at tf.estimator
    substitutes   the modules that the package imports and that TensorFlow has removed
    direct_training  Estimator.train in a cluster, without train_and_evaluate
    tasks         gives Estimator other servers and sessions, and an evaluator that ends with training
    observer      tells an evaluator whether training is over

The package, 2.15.0, is the last release of the original code. Nothing of it is rewritten here.
"""

from __future__ import annotations

from ps_train.parts.legacy.estimator.bridge import install_estimator
from ps_train.parts.legacy.estimator.direct_training import start_servers
from ps_train.parts.legacy.estimator.tasks import replace

__all__ = ["install_estimator", "replace", "start_servers"]
