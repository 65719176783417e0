"""The gRPC interface of TensorFlow Serving, PredictionService.Predict: a client, and a server of a live model.

    call(signature, {name: array}) --PredictRequest--> server --PredictResponse--> {name: array}

    with ps_train.LiveModel("/served/7") as model, ps_train.predict_server(model, 8500):
        model.follow()
        ps_train.predict_client("localhost:8500/news")("serving_default", {"article": ids})

gRPC and protobuf come with TensorFlow, and the messages are few fields around its TensorProto. So they are declared
here: `tensorflow-serving-api`, which has them in Python, requires other versions of TensorFlow and protobuf.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, Callable

import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from ps_train.errors import ConfigError, PsTrainError
from ps_train.parts.live.model import DEFAULT_SIGNATURE, LiveModel
from ps_train.runtime.tensorflow_errors import reason

_SERVICE, _METHOD = "tensorflow.serving.PredictionService", "Predict"
_END_SECS = 10.0  # for the calls at hand when a server ends
# The fields of tensorflow_serving/apis/predict.proto and model.proto that are used. Their numbers count, not the
# package, which must be another one than that of tensorflow-serving-api in the same process.
_TENSORS = """
  field {{ name: "{name}" number: {number} label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Entry" }}
  nested_type {{
    name: "Entry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }}
    field {{ name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.TensorProto" }}
  }}"""
_MESSAGES = f"""
name: "ps_train/predict.proto" package: "ps_train" syntax: "proto3"
dependency: "tensorflow/core/framework/tensor.proto"
message_type {{
  name: "ModelSpec"
  field {{ name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }}
  field {{ name: "signature_name" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING }}
}}
message_type {{
  name: "PredictRequest"
  field {{ name: "model_spec" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "ModelSpec" }}
  {_TENSORS.format(name="inputs", number=2)}
}}
message_type {{ name: "PredictResponse" {_TENSORS.format(name="outputs", number=1)} }}
"""
_POOL = descriptor_pool.Default()
_POOL.AddSerializedFile(text_format.Parse(_MESSAGES, descriptor_pb2.FileDescriptorProto()).SerializeToString())
# protobuf before 4.22, which TensorFlow 2.15 takes, too, has it as a method.
_class_of = getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(_POOL).GetPrototype
PredictRequest, PredictResponse = (_class_of(_POOL.FindMessageTypeByName(f"ps_train.{name}"))
                                   for name in ("PredictRequest", "PredictResponse"))
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
_BY_PROXY = "grpc.enable_http_proxy"
Arrays = Mapping[str, np.ndarray]
Call = Callable[[str, Arrays], Arrays]


class TargetError(Exception):
    """A target does not answer, or refuses a call; the message says which, in a line."""


def predict_client(target: str, timeout_secs: float = 30.0) -> Callable[[str, Arrays], dict[str, np.ndarray]]:
    """Returns a function `call(signature, inputs)` that returns the outputs of a signature of a server, by name.

    It raises TargetError if the server refuses the call, or does not answer in time.

    Args:
      target: HOST:PORT/MODEL.
    """
    address, _, model = target.partition("/")
    # As tasks reach each other (runtime/installed.py): otherwise through the proxy that http_proxy names.
    is_by_proxy = f"{_BY_PROXY}=1" in os.environ.get("TF_GRPC_DEFAULT_OPTIONS", "")
    predict = grpc.insecure_channel(address, [*_OPTIONS, (_BY_PROXY, int(is_by_proxy))]).unary_unary(
        f"/{_SERVICE}/{_METHOD}", PredictRequest.SerializeToString, PredictResponse.FromString)

    def call(signature: str, inputs: Arrays) -> dict[str, np.ndarray]:
        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, signature
        set_arrays(request.inputs, inputs)
        try:
            return arrays_of(predict(request, timeout_secs).outputs)
        except grpc.RpcError as error:
            reason = str(error.details()).partition("\n")[0]
            raise TargetError(f"{signature}: {error.code().name}: {reason}") from None

    return call


def set_arrays(tensors: Any, arrays: Arrays) -> None:
    """Sets the `inputs` or `outputs` of a message."""
    for name, array in arrays.items():
        tensors[name].CopyFrom(tf.make_tensor_proto(array))


def arrays_of(tensors: Any) -> dict[str, np.ndarray]:
    """Returns the `inputs` or `outputs` of a message."""
    return {name: tf.make_ndarray(tensor) for name, tensor in tensors.items()}


@contextlib.contextmanager
def predict_server(
    model: LiveModel, port: int, *, host: str = "localhost", takes_pushes: bool = False
) -> Iterator[int]:
    """Yields the port of a server of a live model, which ends with the body.

    It has neither encryption nor a password.

    Args:
      port: to listen at; 0 takes any that is free.
      host: the address to listen at; "0.0.0.0" takes calls of other machines.
      takes_pushes: whether it is a target of `ps_train publish`; otherwise it refuses the signatures of pushes.

    Raises:
      ConfigError: it cannot listen there.
    """
    def call(signature: str, inputs: Arrays) -> Arrays:
        if signature.startswith("live_") and not takes_pushes:
            raise ConfigError("pushes_refused", f"signature {signature}: this server takes no pushes; start it with "
                              "takes_pushes=True, or let its model follow the folder of the publisher")
        return model.call(signature or DEFAULT_SIGNATURE, inputs)

    with serving_calls(call, port, host) as taken:
        yield taken


@contextlib.contextmanager
def serving_calls(call: Call, port: int = 0, host: str = "localhost") -> Iterator[int]:
    """Yields the port of a server around a function, which threads call at once.

    Args:
      call: `call(signature, inputs)` returns the outputs; a client gets the text of the error that it raises.

    Raises:
      ConfigError: it cannot listen there.
    """
    def predict(request: Any, context: Any) -> Any:
        response = PredictResponse()
        try:
            set_arrays(response.outputs, call(request.model_spec.signature_name, arrays_of(request.inputs)))
        except (PsTrainError, tf.errors.OpError, ValueError, TypeError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason(error))
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        predict, PredictRequest.FromString, PredictResponse.SerializeToString)
    # Without SO_REUSEPORT, a port that another server has is an error.
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(os.cpu_count()),
                         options=[*_OPTIONS, ("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler})])
    try:
        taken = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise ConfigError("port_taken", f"cannot serve at {host}:{port}: {reason(error)}; give a port of this machine "
                          "that is free, or 0 for any") from None
    server.start()
    try:
        yield taken
    finally:
        server.stop(_END_SECS).wait()
