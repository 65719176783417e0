"""The gRPC interface of TensorFlow Serving: what is sent, and what comes back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_train.parts.publish.targets import PredictRequest, PredictResponse, TargetError, make_call, set_arrays
from tests.predict_server import serving
from tests.processes import free_ports


def _field(number, value):
    """A field of the wire format of protobuf, with fewer than 128 bytes."""
    return bytes([number << 3 | 2, len(value)]) + value


def test_the_messages_have_the_numbers_of_tensorflow_serving():
    """Those in predict.proto and model.proto, byte by byte."""
    request = PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "clicks", "live_commit"
    set_arrays(request.inputs, {"step": np.int64(7)})
    tensor = tf.make_tensor_proto(np.int64(7)).SerializeToString()
    entry = _field(1, b"step") + _field(2, tensor)
    assert request.SerializeToString() == _field(1, _field(1, b"clicks") + _field(3, b"live_commit")) + _field(2, entry)
    assert PredictResponse.FromString(_field(1, entry) + _field(2, b"")).outputs["step"].int64_val[0] == 7


def test_arrays_arrive_as_they_were_and_come_back():
    """Scalars, rows, none of them, bytes and texts."""
    inputs = {"number": np.int64(2**62), "rows": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32),
              "none": np.zeros([0, 3], np.float32), "dense": np.arange(5, dtype=np.uint8),
              "text": np.array(b"x", object)}
    with serving(lambda signature, arrays: {**arrays, "signature": np.array(signature.encode(), object)}) as port:
        outputs = make_call(f"localhost:{port}/m", 10)("live_rows/t", inputs)
    assert outputs.pop("signature").item() == b"live_rows/t"
    for name, array in inputs.items():
        assert (outputs[name].dtype, outputs[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(outputs[name], array)


def test_a_call_that_fails_says_why():
    """The server refuses it, or is not there."""
    def refuse(signature, arrays):
        raise ValueError("the number is 7\nmore")

    with serving(refuse) as port, pytest.raises(TargetError, match=r"live_commit: INVALID_ARGUMENT: the number is 7$"):
        make_call(f"localhost:{port}/m", 10)("live_commit", {"number": np.int64(1)})
    with pytest.raises(TargetError, match="live_status: UNAVAILABLE"):
        make_call(f"localhost:{free_ports(1)[0]}/m", 10)("live_status", {})
