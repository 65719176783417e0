"""The folders of exports, BASE/SECONDS, of tf.contrib.learn.utils.saved_model_export_utils: the newest are kept."""

from __future__ import annotations

from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow_estimator.python.estimator import gc


def _paths(export_dir_base: str | bytes) -> list[Any]:
    """Returns (path, export_version) of each folder with a number for a name; others may be beside them."""
    def parse(path: Any) -> Any:
        name = path.path.rstrip("/").rpartition("/")[2]
        return path._replace(export_version=int(name)) if name.isdecimal() else None
    return gc._get_paths(tf.compat.as_str_any(export_dir_base), parser=parse)  # noqa: SLF001 (it has no public name)


def get_most_recent_export(export_dir_base: str | bytes) -> Any:
    """Returns (path, export_version) of the newest export, or None."""
    return max(_paths(export_dir_base), key=lambda path: path.export_version, default=None)


def garbage_collect_exports(export_dir_base: str | bytes, exports_to_keep: int | None) -> None:
    """Removes all exports but so many of the newest; None keeps all."""
    if exports_to_keep is None:
        return
    newest_first = sorted(_paths(export_dir_base), key=lambda path: -path.export_version)
    for path in newest_first[exports_to_keep:]:
        try:
            tf.gfile.DeleteRecursively(path.path)
        except tf.errors.NotFoundError as error:  # another task has removed it
            tf.logging.warning("Can not delete %s recursively: %s", path.path, error)
