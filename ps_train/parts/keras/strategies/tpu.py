"""Looks for a TPU, without TensorFlow."""

from __future__ import annotations

import glob
from collections.abc import Mapping

from ps_train.errors import ConfigError

# What TensorFlow's TPUClusterResolver reads (distribute/cluster_resolver/tpu/tpu_cluster_resolver.py), and where the
# driver of a TPU VM puts its devices.
_VARIABLES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")
_DEVICES = ("/dev/accel*", "/dev/vfio/[0-9]*")


def find_tpu(tpu_name: str, environ: Mapping[str, str], root: str = "") -> str:
    """Returns the argument of TPUClusterResolver: a name, an address, or `local` for the chips of a TPU VM.

    Args:
      tpu_name: the flag, "" if it is not given.
      root: stands before the paths of devices; for tests.

    Raises:
      ConfigError: there is no TPU; the text says where it was looked for.
    """
    for name in (tpu_name, *(environ.get(variable, "") for variable in _VARIABLES)):
        if name:
            return name
    if any(glob.glob(root + pattern) for pattern in _DEVICES):
        return "local"
    raise ConfigError("--strategy=tpu: no TPU was found. Looked for --tpu_name (not given), "
                      + ", ".join(f"{variable} (not set)" for variable in _VARIABLES)
                      + f", and devices {', '.join(_DEVICES)} (none). Run it on a TPU VM, name the TPU, or choose "
                        "another strategy")
