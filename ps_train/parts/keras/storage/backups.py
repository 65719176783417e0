"""Finds backups that cannot be read, and sets them aside, so that training continues from its newest checkpoint."""

from __future__ import annotations

import glob
import logging
import os
import shutil

import tensorflow as tf

from ps_train.errors import CheckpointError
from ps_train.runtime import tensorflow_errors
from ps_train.storage import checkpoints

_log = logging.getLogger(__name__)


def set_damaged_aside(train_dir: str) -> None:
    """Renames each damaged `backup-N` to `damaged-backup-N`; call it as the chief, before any worker reads them."""
    for folder in glob.glob(os.path.join(glob.escape(train_dir), "backup-*")):
        problem = _damage(os.path.join(folder, "chief"))
        if problem:
            aside = os.path.join(train_dir, f"damaged-{os.path.basename(folder)}")
            shutil.rmtree(aside, ignore_errors=True)
            os.replace(folder, aside)
            _log.warning("the backup %s cannot be read: %s; it is now %s, and training continues from the newest "
                         "checkpoint", folder, problem, aside)


def _damage(folder: str) -> str:
    """Says what is wrong with the backup in a folder, "" for nothing."""
    try:
        newest = tf.train.latest_checkpoint(folder)
        if newest is None:
            return "it names no checkpoint that is there"
        checkpoints.verify(newest)
    except CheckpointError as error:
        return str(error)
    except (tf.errors.OpError, ValueError) as error:  # of the file `checkpoint`
        return tensorflow_errors.reason(error)
    return ""
