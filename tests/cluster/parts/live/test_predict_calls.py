"""The gRPC interface of TensorFlow Serving: what is sent, and what comes back."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from ps_train.parts.live.predict_calls import (
    PredictRequest,
    PredictResponse,
    TargetError,
    predict_client,
    predict_server,
    serving_calls,
    set_arrays,
)
from tests.errors import raises
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
    with serving_calls(lambda signature, arrays: {**arrays, "signature": np.array(signature.encode(), object)}) as port:
        outputs = predict_client(f"localhost:{port}/m", 10)("live_rows/t", inputs)
    assert outputs.pop("signature").item() == b"live_rows/t"
    for name, array in inputs.items():
        assert (outputs[name].dtype, outputs[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(outputs[name], array)


def test_a_call_that_fails_says_why():
    """The server refuses it, or is not there."""
    def refuse(signature, arrays):
        raise ValueError("the number is 7\nmore")

    message = r"live_commit: INVALID_ARGUMENT: the number is 7$"
    with serving_calls(refuse) as port, pytest.raises(TargetError, match=message):
        predict_client(f"localhost:{port}/m", 10)("live_commit", {"number": np.int64(1)})
    with pytest.raises(TargetError, match="live_status: UNAVAILABLE"):
        predict_client(f"localhost:{free_ports(1)[0]}/m", 10)("live_status", {})


@pytest.mark.parametrize(("options", "is_direct"), [("", True), ("grpc.enable_http_proxy=1", False)])
def test_a_call_goes_through_no_proxy_unless_the_tasks_do(monkeypatch, options, is_direct):
    """Most proxies refuse it; the variable that says otherwise is that of the tasks."""
    for name in ("grpc_proxy", "https_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://localhost:{free_ports(1)[0]}")  # nobody answers there
    monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", options)
    with serving_calls(lambda signature, arrays: arrays) as port:
        predict = predict_client(f"localhost:{port}/m", 10)
        if is_direct:
            assert predict("live_status", {"x": np.int64(1)}) == {"x": 1}
        else:
            with pytest.raises(TargetError, match="live_status: UNAVAILABLE"):
                predict("live_status", {"x": np.int64(1)})


class _Model:
    """Answers with the signature that it is asked for."""

    def call(self, signature, inputs):
        return {signature: inputs["x"]}


def test_a_server_of_a_model_takes_pushes_only_if_it_is_told_to():
    """Without a signature it is the default one that a call asks for; a port that is taken is one line."""
    x = {"x": np.int64(1)}
    with predict_server(_Model(), 0) as port, predict_server(_Model(), 0, takes_pushes=True) as target:
        predict = predict_client(f"localhost:{port}/m")
        assert {*predict("", x), *predict("serving_default", x)} == {"serving_default"}
        with pytest.raises(TargetError, match="live_commit: INVALID_ARGUMENT: .*: this server takes no pushes"):
            predict("live_commit", x)
        assert predict_client(f"localhost:{target}/m")("live_commit", x) == {"live_commit": 1}
        with raises("port_taken"), predict_server(_Model(), port):
            pass
