"""A live model in this process, which follows the folder of a publisher: the reference for other readers.

    publish_dir/CURRENT --model-N--> load --push-N+1, ...--> live_rows, live_commit
                        --another training, a push that is gone, or no room--> load the new version, close the old one

    with ps_train.LiveModel("/served/7") as model:
        model.follow()
        model.predict({"ids": [[17, 42]]})
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.errors import ConfigError, UserCodeError
from ps_train.parts.live import pushes
from ps_train.parts.live.pushes import Current, PushError, Rows
from ps_train.runtime import threads
from ps_train.runtime.tensorflow_errors import reason

DEFAULT_SIGNATURE = "serving_default"
_END_SECS = 30.0  # for the push at hand
# What TensorFlow's loader raises for files that are missing, damaged or not whole yet: an empty saved_model.pb is a
# RuntimeError, as it has no tags, and one that is cut off may be a ValueError.
_UNREADABLE = (OSError, tf.errors.OpError, RuntimeError, ValueError)
_log = logging.getLogger(__name__)


class _Loaded:
    """One version in a session, with the number of calls that use it."""

    def __init__(self, folder: str) -> None:
        if not os.path.exists(os.path.join(folder, "saved_model.pb")):
            raise ConfigError("no_saved_model", f"no saved_model.pb in {folder!r}; give the folder that `ps_train "
                              "export --live` wrote, or the --publish_dir of `ps_train publish`")
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.session = tf.Session(graph=self.graph, config=tf.ConfigProto(allow_soft_placement=True))
            with _without_wildcards(folder) as path:
                loaded = tf.saved_model.loader.load(self.session, [tf.saved_model.tag_constants.SERVING], path)
            get = tf.saved_model.utils.get_tensor_from_tensor_info
            self.signatures = {key: tuple({name: get(info, self.graph) for name, info in infos.items()}
                                          for infos in (signature.inputs, signature.outputs))
                               for key, signature in loaded.signature_def.items()}
        if "live_status" not in self.signatures:
            self.session.close()
            raise ConfigError("model_not_live", f"the SavedModel in {folder} is not live: it has the signatures "
                              f"{', '.join(sorted(self.signatures))}; export it with --live")
        self.num_calls, self.is_retired = 0, False

    def run(self, key: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of a signature."""
        if key not in self.signatures:
            raise ConfigError("no_such_signature", f"got the signature {key!r}; this model has "
                              f"{', '.join(sorted(self.signatures))}")
        tensors, outputs = self.signatures[key]
        if inputs.keys() != tensors.keys():
            raise ConfigError("wrong_inputs", f"signature {key}: got the inputs {', '.join(sorted(inputs))}; allowed: "
                              f"{', '.join(sorted(tensors))}")
        return self.session.run(outputs, {tensors[name]: value for name, value in inputs.items()})


@contextlib.contextmanager
def _without_wildcards(folder: str) -> Iterator[str]:
    """Yields a path of the folder without wildcards: TensorFlow takes it for a pattern when it looks for variables."""
    if not re.search(r"[*?\[\\]", folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        link = os.path.join(place, "model")
        os.symlink(os.path.abspath(folder), link)
        yield link


def _newest_export(folder: str, *, takes_versions: bool) -> str:
    """Returns this folder, or the one called by the highest number in it, that has a SavedModel; "" if none has."""
    names = os.listdir(folder) if takes_versions and os.path.isdir(folder) else []
    versions = sorted((name for name in names if name.isdecimal()), key=int, reverse=True)
    folders = (os.path.join(folder, name) for name in ("", *versions))
    return next((found for found in folders if os.path.exists(os.path.join(found, "saved_model.pb"))), "")


class LiveModel:
    """A live model, which threads may use at once. Close it.

    Attributes:
      folder: of the SavedModel, or of a publisher.
      problem: why the last update failed, "" if it did not.
      num_loads: versions that were loaded.
    """

    def __init__(self, folder: str) -> None:
        """Loads the model, and applies the pushes that are there.

        Args:
          folder: the --export_dir of `ps_train export --live`, of which it takes the newest version, a version in it,
            or the --publish_dir of `ps_train publish`.

        Raises:
          ConfigError: the folder has no live model, or one that cannot be loaded.
          PushError: a push is damaged.
        """
        self.folder, self.problem, self.num_loads = folder, "", 0
        self._version = ""  # the name of its model's folder
        self._lock, self._updating = threading.Lock(), threading.Lock()
        self._is_closing = threading.Event()
        self._thread: Any = None
        self._loaded: _Loaded | None = None
        is_published = os.path.exists(os.path.join(folder, pushes.CURRENT))
        try:
            if exported := _newest_export(folder, takes_versions=not is_published):
                self._load(exported)
            else:
                self._first_update()
        except _UNREADABLE as error:
            raise ConfigError("model_unreadable", f"the live model in {folder!r} cannot be loaded: {reason(error)}; a "
                              "publisher that is started again replaces a damaged one, and an export can be made "
                              "again") from None
        if self._loaded is None:
            raise ConfigError("no_live_model", f"no live model in {folder!r}: neither saved_model.pb nor a "
                              f"{pushes.CURRENT} that can be read; give the folder of `ps_train export --live` or the "
                              "--publish_dir of `ps_train publish`")

    def _first_update(self) -> None:
        """Updates; once more if that fails, as a new version may have replaced the one that `CURRENT` named."""
        with contextlib.suppress(*_UNREADABLE, ConfigError, PushError):
            self.update()
            return
        self.update()

    def __enter__(self) -> LiveModel:
        """Returns this model."""
        return self

    def __exit__(self, *_: Any) -> None:
        """Closes it."""
        self.close()

    @contextlib.contextmanager
    def _using(self) -> Iterator[_Loaded]:
        with self._lock:
            loaded = self._loaded
            if loaded is None:
                raise ConfigError("model_closed", f"the model of {self.folder} is closed; load it again")
            loaded.num_calls += 1
        try:
            yield loaded
        finally:
            with self._lock:
                loaded.num_calls -= 1
                is_unused = loaded.is_retired and not loaded.num_calls
            if is_unused:
                loaded.session.close()

    def _load(self, folder: str) -> None:
        self._replace(_Loaded(folder))
        self.num_loads += 1

    def _replace(self, loaded: _Loaded | None) -> None:
        """Lets later calls use another version; the calls at hand end with the old one, which is then closed."""
        with self._lock:
            if loaded is not None and self._is_closing.is_set():
                old = loaded  # it came too late
            else:
                old, self._loaded = self._loaded, loaded
            if old is not None:
                old.is_retired = True
            is_unused = old is not None and not old.num_calls
        if old is not None and is_unused:
            old.session.close()

    def predict(self, batch: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE) -> dict[str, np.ndarray]:
        """Returns name -> array of each output, for name -> array of each input.

        Raises:
          ConfigError: the model has no such signature, or other inputs.
        """
        return self.call(signature, batch)

    def call(self, signature: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs of any signature.

        Raises:
          ConfigError: the model has no such signature, or other inputs.
          UserCodeError: the model refuses the rows or the commit of a push; nothing of the call is applied.
        """
        with self._using() as loaded:
            try:
                return loaded.run(signature, inputs)
            except tf.errors.InvalidArgumentError as error:
                if not signature.startswith("live_"):
                    raise
                text = reason(error).removeprefix("assertion failed: ").strip("[]")
                raise UserCodeError("push_refused", text) from None

    def status(self) -> dict[str, Any]:
        """Returns number, step, training, dense_bytes, dense_layout, tables and used; see docs/live_models.md."""
        values = self.call("live_status", {"probe": 0})
        return {"number": int(values["number"]), "step": int(values["step"]),
                "training": values["training"].decode(), "dense_bytes": int(values["dense_bytes"]),
                "dense_layout": values["dense_layout"].decode(), "tables": values["tables"].decode(),
                "used": values["used"].tolist()}

    def update(self) -> int:
        """Applies the pushes of the folder that the model lacks, or loads a new version first; returns its number.

        Raises:
          PushError: a push is damaged.
          UserCodeError: the model refuses a push.
        """
        with self._updating:
            current = pushes.read_current(self.folder)
            if current is None:
                return self.status()["number"] if self._loaded else 0
            if not self._can_go_on(current):
                self._load_version(current)
            try:
                self._apply_until(current.last)
            except UserCodeError:  # as it has no room for the rows of a push
                if self._version == current.model:
                    raise
                self._load_version(current)
                self._apply_until(current.last)
            return self.status()["number"]

    def _load_version(self, current: Current) -> None:
        self._load(os.path.join(self.folder, current.model))
        self._version = current.model

    def _apply_until(self, last: int) -> None:
        for number in range(self.status()["number"] + 1, last + 1):
            self.apply(pushes.push_path(self.folder, number))

    def _can_go_on(self, current: Current) -> bool:
        if self._loaded is None:
            return False
        status = self.status()
        lacking = range(status["number"] + 1, current.last + 1)
        # To load the version that it has would take what is served back, and not bring a push that is missing.
        return status["training"] == current.training and status["number"] <= current.last and (
            self._version == current.model
            or all(os.path.exists(pushes.push_path(self.folder, number)) for number in lacking))

    def apply(self, path: str) -> None:
        """Applies one push.

        Raises:
          PushError: the file is damaged; nothing is applied.
          UserCodeError: the model refuses it, as it lacks the push before.
        """
        begin, contents = pushes.read_push(path)
        dense = b""
        for content in contents:
            if isinstance(content, Rows):
                self.call(f"live_rows/{content.table}", {
                    "number": begin.number, "ids": content.ids, "rows": content.rows, "dropped": content.dropped})
            else:
                dense = content
        self.call("live_commit", {"number": begin.number, "previous": begin.previous, "step": begin.step,
                                  "dense": np.frombuffer(dense, np.uint8)})

    def follow(self, poll_secs: float = 1.0) -> None:
        """Updates the model in a thread until it is closed; what fails is logged, and tried again."""
        if self._thread is None:
            self._thread = threads.start_thread(lambda: self._follow(poll_secs), f"follows {self.folder}")

    def _follow(self, poll_secs: float) -> None:
        while not self._is_closing.wait(poll_secs):
            try:
                self.update()
                problem = ""
            except (PushError, UserCodeError, ConfigError, *_UNREADABLE) as error:
                problem = str(error)
            if problem and problem != self.problem and not self._is_closing.is_set():
                _log.warning("%s: %s; trying again", self.folder, problem)
            self.problem = problem

    def close(self) -> None:
        """Ends the thread, and closes the model when the calls at hand have ended."""
        self._is_closing.set()
        if self._thread is not None:
            self._thread.join(_END_SECS)
        self._replace(None)
