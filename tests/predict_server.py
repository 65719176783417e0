"""A server with the gRPC interface of TensorFlow Serving around a function, in threads of this process."""

from __future__ import annotations

import concurrent.futures
import contextlib

import grpc

from ps_train.parts.publish import targets


@contextlib.contextmanager
def serving(call, port=0):
    """Yields the port of a server of any model.

    Args:
      call: `call(signature, inputs)` returns the outputs; of an error that it raises, the client gets the text.
      port: to listen at, 0 for any.
    """
    def predict(request, context):
        try:
            outputs = call(request.model_spec.signature_name, targets.arrays_of(request.inputs))
        except Exception as error:  # noqa: BLE001 (the client gets it)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = targets.PredictResponse()
        targets.set_arrays(response.outputs, outputs)
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        predict, targets.PredictRequest.FromString, targets.PredictResponse.SerializeToString)
    service, _, method = targets.METHOD[1:].partition("/")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    port = server.add_insecure_port(f"localhost:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait(10)
