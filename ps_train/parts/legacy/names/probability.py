"""Distributions of `tf.contrib.distributions` that TensorFlow Probability has not, or with other arguments."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_probability import distributions


class _Diagonal(distributions.MultivariateNormalDiag):
    """TensorFlow Probability's, with the third argument that it had; see distributions.py."""

    def __init__(self, loc: Any = None, scale_diag: Any = None, scale_identity_multiplier: Any = None,
                 validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "MultivariateNormalDiag") -> None:
        if scale_identity_multiplier is not None:
            each = tf.convert_to_tensor(scale_identity_multiplier)[..., tf.newaxis]
            scale_diag = each * tf.ones_like(loc) if scale_diag is None else each + scale_diag
        super().__init__(loc=loc, scale_diag=scale_diag, validate_args=validate_args, allow_nan_stats=allow_nan_stats,
                         name=name)


class _SoftplusDiagonal(_Diagonal):
    """The same, of the deviations `softplus(scale_diag)`."""

    def __init__(self, loc: Any, scale_diag: Any, validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "MultivariateNormalDiagWithSoftplusScale") -> None:
        super().__init__(loc, tf.nn.softplus(scale_diag), None, validate_args, allow_nan_stats, name)


class _SoftplusNormal(distributions.Normal):
    """Normal numbers of the deviation `softplus(scale)`."""

    def __init__(self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True,
                 name: str = "NormalWithSoftplusScale") -> None:
        super().__init__(loc, tf.nn.softplus(scale), validate_args, allow_nan_stats, name)


# What `tf.contrib.distributions` finds; distributions.py has the same names, without that package.
MultivariateNormalDiag = _Diagonal
MultivariateNormalDiagWithSoftplusScale = _SoftplusDiagonal
NormalWithSoftplusScale = _SoftplusNormal
