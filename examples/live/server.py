"""Serves the newest rows of a training: a gRPC server around ps_train.LiveModel.

    python server.py served 8500       the folder of `ps_train publish`, and a port of this machine

It has the Predict call of TensorFlow Serving, so any client of that can ask it. It follows the folder by itself.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import sys
from collections.abc import Iterator

import grpc

import ps_train
from ps_train.parts.publish import targets


@contextlib.contextmanager
def serving(model: ps_train.LiveModel, port: int) -> Iterator[int]:
    """Yields the port of a server of this machine; 0 takes any."""
    def predict(request: targets.PredictRequest, context: grpc.ServicerContext) -> targets.PredictResponse:
        signature = request.model_spec.signature_name or "serving_default"
        if signature.startswith("live_"):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this server takes its rows from its folder")
        try:
            outputs = model.predict(targets.arrays_of(request.inputs), signature)
        except ps_train.PsTrainError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        response = targets.PredictResponse()
        targets.set_arrays(response.outputs, outputs)
        return response

    handler = grpc.unary_unary_rpc_method_handler(
        predict, targets.PredictRequest.FromString, targets.PredictResponse.SerializeToString)
    service, _, method = targets.METHOD[1:].partition("/")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(os.cpu_count()))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
    port = server.add_insecure_port(f"localhost:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(grace=10).wait()


def main(folder: str, port: int) -> None:
    """Serves until it is interrupted."""
    with ps_train.LiveModel(folder) as model, serving(model, port) as port:
        model.follow(poll_secs=0.5)
        print(f"serving {folder} at localhost:{port}, at push {model.status()['number']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            concurrent.futures.Future().result()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
