"""`tf.contrib.saved_model`: a Keras model as a SavedModel, and back.

    folder/1543400000/saved_model.pb   variables/   assets/saved_model.json (its layers)   assets/weights.*
"""

from __future__ import annotations

import pathlib
import time
from typing import Any

import tensorflow.compat.v1 as tf

_LAYERS, _WEIGHTS = "assets/saved_model.json", "assets/weights"


def save_keras_model(model: Any, saved_model_path: Any, custom_objects: Any = None, as_text: bool | None = None,
                     input_signature: Any = None, serving_only: bool = False) -> str:
    """Writes a model, for serving and for `load_keras_model`, into a new folder, which it returns.

    Args:
      model: of `tf.keras`, in the graph of its session.
      saved_model_path: the folder above; the name of the new one is the time in seconds.
      custom_objects: without effect here; `load_keras_model` takes them.
      as_text: whether the graph is written as text.
      input_signature: without effect: the inputs are those of the model.
      serving_only: whether the layers are left out, so that it cannot be loaded again.
    """
    folder = _new_folder(pathlib.Path(_text(saved_model_path)))
    session = tf.keras.backend.get_session()
    with session.graph.as_default():
        builder = tf.saved_model.builder.SavedModelBuilder(str(folder))
        signature = tf.saved_model.signature_def_utils.predict_signature_def(
            dict(zip(model.input_names, model.inputs)), dict(zip(model.output_names, model.outputs)))
        builder.add_meta_graph_and_variables(
            session, [tf.saved_model.tag_constants.SERVING], signature_def_map={"serving_default": signature},
            main_op=tf.tables_initializer())
        session.graph.clear_collection(tf.saved_model.constants.MAIN_OP_KEY)  # else a second export is refused
        builder.save(as_text=bool(as_text))
    if not serving_only:
        (folder / _LAYERS).parent.mkdir(exist_ok=True)
        (folder / _LAYERS).write_text(model.to_json(), encoding="utf-8")
        model.save_weights(str(folder / _WEIGHTS), save_format="tf")
    return str(folder)


def _text(path: Any) -> str:
    return path.decode() if isinstance(path, bytes) else str(path)


def _new_folder(above: pathlib.Path) -> pathlib.Path:
    seconds = int(time.time())
    while (above / str(seconds)).exists():
        seconds += 1
    return above / str(seconds)


def load_exported_keras_model(saved_model_path: Any, custom_objects: Any = None) -> Any:
    """Returns the model that `save_keras_model` has written into a folder."""
    folder = pathlib.Path(_text(saved_model_path))
    text = (folder / _LAYERS).read_text(encoding="utf-8")
    model = tf.keras.models.model_from_json(text, custom_objects)
    model.load_weights(str(folder / _WEIGHTS))
    return model
