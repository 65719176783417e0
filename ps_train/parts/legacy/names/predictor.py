"""`tf.contrib.predictor`: a model that is loaded once, and then called with arrays."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf
from tensorflow.python.saved_model import loader_impl  # reads a SavedModel without loading it; it has no public name

_log = logging.getLogger(__name__)
_SERVING = "serving_default"
_INPUT = "default_input_alternative"  # contrib.learn's


class ContribPredictor:
    """A session with a model.

    Attributes:
      graph: of the model.
      session: of the model.
      feed_tensors: name -> what takes an array of that name.
      fetch_tensors: name -> a tensor of the result.
    """

    def __init__(self, session: tf.Session, feeds: Mapping[str, str], fetches: Mapping[str, str]) -> None:
        self.session, self.graph = session, session.graph
        self.feed_tensors, self.fetch_tensors = (
            {key: self.graph.get_tensor_by_name(name) for key, name in names.items()} for names in (feeds, fetches))

    def __call__(self, input_dict: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the result for name -> array; an input that is None, or not there, is not fed.

        Raises:
          ValueError: no input has one of the names.
        """
        unexpected = set(input_dict) - set(self.feed_tensors)
        if unexpected:
            raise ValueError(f"Got unexpected keys in input_dict: {unexpected}\nexpected: {set(self.feed_tensors)}")
        feed = {self.feed_tensors[key]: value for key, value in input_dict.items() if value is not None}
        return self.session.run(self.fetch_tensors, feed)

    def __repr__(self) -> str:
        return (f"{type(self).__name__} with feed tensors {self.feed_tensors} and fetch_tensors "
                f"{self.fetch_tensors}")


def from_saved_model(export_dir: str, signature_def_key: str | None = None, signature_def: Any = None,
                     input_names: Mapping[str, str] | None = None, output_names: Mapping[str, str] | None = None,
                     tags: str | None = None, graph: tf.Graph | None = None, config: Any = None) -> ContribPredictor:
    """Loads a SavedModel.

    Args:
      export_dir: its folder.
      signature_def_key: which of its signatures; "serving_default" by default.
      signature_def: a signature instead.
      input_names: name -> name of a tensor, for what is fed; instead of a signature, together with the next one.
      output_names: name -> name of a tensor, for the result.
      tags: of the graph in it, separated by commas; "serve" by default.
      graph: it is loaded into it.
      config: a ConfigProto for its session.

    Raises:
      ValueError: two ways to choose the tensors are given, or the SavedModel has no such graph or signature.
    """
    if (input_names is None) != (output_names is None):
        raise ValueError("input_names and output_names must both be specified or both be unspecified.")
    if sum(given is not None for given in (signature_def_key, signature_def, input_names)) > 1:
        raise ValueError("You must specify at most one of signature_def_key OR signature_def OR(input_names AND "
                         "output_names).")
    wanted = (tags or tf.saved_model.tag_constants.SERVING).split(",")
    if input_names is None:
        signature_def = signature_def or _signature(export_dir, wanted, signature_def_key or _SERVING)
        input_names, output_names = _names_of(signature_def)
    with (graph or tf.Graph()).as_default() as loaded:
        session = tf.Session(graph=loaded, config=config)
        tf.saved_model.loader.load(session, wanted, export_dir)
    return ContribPredictor(session, input_names, output_names or {})


def _names_of(signature: Any) -> tuple[dict[str, str], dict[str, str]]:
    inputs, outputs = ({key: info.name for key, info in infos.items()}
                       for infos in (signature.inputs, signature.outputs))
    return inputs, outputs


def _signature(export_dir: str, tags: Sequence[str], key: str) -> Any:
    graphs = loader_impl.parse_saved_model(export_dir).meta_graphs
    wanted = {tag.strip() for tag in tags}
    found = next((graph for graph in graphs if set(graph.meta_info_def.tags) == wanted), None)
    if found is None:
        raise ValueError(f"Could not find MetaGraphDef with tags {','.join(tags)}")
    # contrib.learn gave its signatures such names.
    for name in (key, f"default_input_alternative:{key}"):
        if name in found.signature_def:
            if name != key:
                _log.warning('Could not find signature def "%s". Using "%s" instead', key, name)
            return found.signature_def[name]
    raise ValueError(f'Got signature_def_key "{key}". Available signatures are {sorted(found.signature_def)}.')


def from_estimator(estimator: Any, serving_input_receiver_fn: Any, output_key: str | None = None,
                   graph: tf.Graph | None = None, config: Any = None) -> ContribPredictor:
    """Loads the last checkpoint of an Estimator, whose inputs are those of `serving_input_receiver_fn()`.

    Raises:
      KeyError: the model exports nothing of the name `output_key`, "serving_default" by default.
    """
    with (graph or tf.Graph()).as_default():
        receiver = serving_input_receiver_fn()
        spec = estimator.model_fn(receiver.features, None, "infer", estimator.config)
        output = (spec.export_outputs or {}).get(output_key or _SERVING)
        if output is None:
            raise KeyError(f"output_key must be one of {list(spec.export_outputs or ())}; got {output_key or _SERVING}")
        signature = output.as_signature_def(receiver.receiver_tensors)
        session = tf.train.MonitoredSession(tf.train.ChiefSessionCreator(
            config=config, checkpoint_dir=estimator.model_dir))
        return ContribPredictor(session, *_names_of(signature))


def from_contrib_estimator(estimator: Any, prediction_input_fn: Any, input_alternative_key: str | None = None,
                           output_alternative_key: str | None = None, graph: tf.Graph | None = None,
                           config: Any = None) -> ContribPredictor:
    """Loads the last checkpoint of an Estimator of contrib.learn.

    Args:
      estimator: the model.
      prediction_input_fn: a serving input function, which returns InputFnOps.
      input_alternative_key: "default_input_alternative", the only one that there is.
      output_alternative_key: of several outputs, such as those of heads, the name of one.
      graph: the model is built in it.
      config: a ConfigProto for its session.

    Raises:
      KeyError: there is no such alternative of the input, or of the output of a model of tf.estimator.
      ValueError: there are several outputs, and none is chosen; or none has that name.
      TypeError: it is an Estimator of tf.estimator.
    """
    # Only with the Estimator.
    from ps_train.parts.legacy.names.learn import Fitting, as_receiver_fn  # noqa: PLC0415

    if not isinstance(estimator, Fitting):
        raise TypeError(f"from_contrib_estimator takes a tf.contrib.learn.Estimator; got {type(estimator).__name__}, "
                        "for which there is from_estimator")
    if input_alternative_key not in (None, _INPUT):
        raise KeyError(f"input_alternative_key must be {_INPUT}; got {input_alternative_key}")

    def receiver_fn() -> Any:
        return as_receiver_fn(prediction_input_fn)()
    return from_estimator(_Choosing(estimator, output_alternative_key), receiver_fn, output_alternative_key, graph,
                          config)


class _Choosing:
    """An Estimator of contrib.learn whose model has one output, or a chosen one."""

    def __init__(self, estimator: Any, key: str | None) -> None:
        self._estimator, self._key = estimator, key
        self.model_dir, self.config = estimator.model_dir, estimator.config

    def model_fn(self, *args: Any) -> Any:
        from ps_train.parts.legacy.names.learn import with_default_output  # noqa: PLC0415 (only with the Estimator)

        spec = self._estimator.model_fn(*args)
        names = set(spec.export_outputs or ()) - {_SERVING}
        if self._key is None and "predict" in names and names <= {"classification", "regression", "predict"}:
            return spec._replace(export_outputs={
                _SERVING: tf.estimator.export.PredictOutput(self._of_canned(spec.export_outputs))})
        return with_default_output(spec, self._key)

    def _of_canned(self, outputs: Mapping) -> dict:
        """Returns the output that contrib.learn's own models had; the "classes" are the names of all classes."""
        if "classification" in outputs:
            output = outputs["classification"]
            return {"probabilities": output.scores, "classes": output.classes}
        return {"scores": self._estimator.with_old_names(outputs["predict"].outputs)["scores"]}
