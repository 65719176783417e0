"""The gRPC interface of TensorFlow Serving, PredictionService.Predict, as far as pushes need it.

    call(signature, {name: array}) --PredictRequest--> server --PredictResponse--> {name: array}

gRPC and protobuf come with TensorFlow, and the messages are few fields around its TensorProto. So they are declared
here: `tensorflow-serving-api`, which has them in Python, requires other versions of TensorFlow and protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

import grpc
import numpy as np
import tensorflow.compat.v1 as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

METHOD = "/tensorflow.serving.PredictionService/Predict"
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
PredictRequest, PredictResponse = (message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"ps_train.{name}"))
                                   for name in ("PredictRequest", "PredictResponse"))
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
Arrays = Mapping[str, np.ndarray]


class TargetError(Exception):
    """A target does not answer, or refuses a call; the message says which, in a line."""


def make_call(target: str, timeout_secs: float) -> Callable[[str, Arrays], dict[str, np.ndarray]]:
    """Returns a function `call(signature, inputs)` that returns the outputs of a signature of a server.

    It raises TargetError if the server refuses the call, or does not answer in time.

    Args:
      target: HOST:PORT/MODEL.
    """
    address, _, model = target.partition("/")
    predict = grpc.insecure_channel(address, _OPTIONS).unary_unary(
        METHOD, PredictRequest.SerializeToString, PredictResponse.FromString)

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
