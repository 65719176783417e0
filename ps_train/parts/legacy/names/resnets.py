"""TF-Slim's residual networks, which were told by their scope until 1.1 whether they train.

    with slim.arg_scope(resnet_v1.resnet_arg_scope(is_training=False)):
        logits, _ = resnet_v1.resnet_v1_50(images, 1000)

Since 1.2 the network is told, `resnet_v1_50(images, 1000, is_training=False)`; where it is not, the scope counts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tensorflow.compat.v1 as tf
from tf_slim.layers import layers
from tf_slim.nets import resnet_utils, resnet_v1, resnet_v2
from tf_slim.ops import arg_scope as scopes

_Scope = dict[str, dict[str, Any]]
_TOLD = "ps_train: residual networks"  # beside the functions of a scope whose `resnet_arg_scope` was told


def _with_training(original: Callable[..., _Scope]) -> Callable[..., _Scope]:
    """Returns `resnet_arg_scope` that takes `is_training`, its first argument until 1.1, too."""
    @functools.wraps(original)
    def resnet_arg_scope(*args: Any, is_training: bool | None = None, **kwargs: Any) -> _Scope:
        if args and (isinstance(args[0], bool) or tf.is_tensor(args[0]) and args[0].dtype == tf.bool):
            is_training, *args = args
        scope = original(*args, **kwargs)
        if is_training is None:
            return scope
        with scopes.arg_scope(scope), scopes.arg_scope([layers.batch_norm], is_training=is_training) as changed:
            return {**changed, _TOLD: {"is_training": is_training}}
    return resnet_arg_scope


def _as_its_scope(original: Callable) -> Callable:
    """Returns a network that trains if its `resnet_arg_scope` was told so, unless it is told itself."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def network(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        return original(**{**scopes.current_arg_scope().get(_TOLD, {}), **given})
    return network


def _let_scopes_tell() -> None:
    told = _with_training(resnet_utils.resnet_arg_scope)
    for module in (resnet_utils, resnet_v1, resnet_v2):
        module.resnet_arg_scope = told
        for name in list(vars(module)):
            if name in ("resnet_v1", "resnet_v2") or name.startswith(("resnet_v1_", "resnet_v2_")):
                function = getattr(module, name)
                if "is_training" in inspect.signature(function).parameters:  # not those that make a block
                    setattr(module, name, _as_its_scope(function))


_let_scopes_tell()
