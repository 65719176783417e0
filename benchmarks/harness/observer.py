"""Looks at the parameters on a ps while a cluster trains and records them: of the classic loop and of ps_train alike.

It is a TensorFlow client of ps 0 and knows nothing of the workers. A sample costs the ps one read of the parameters.
"""

from __future__ import annotations

import argparse
import os
import socket
import time

import tensorflow.compat.v1 as tf

from benchmarks.harness import options, plug_in
from ps_train import EVAL

_POLL_SECS = 0.01
_NOT_READY = (tf.errors.FailedPreconditionError, tf.errors.NotFoundError, tf.errors.UnavailableError)


def main() -> None:
    """Records until the recording is complete."""
    arguments = _parse()
    tf.disable_v2_behavior()
    if arguments.resource_variables:
        tf.enable_resource_variables()
    _wait_for_port(arguments.ps_host)
    with tf.device("/job:ps/task:0/cpu:0"):
        global_step = tf.train.create_global_step()
        parameters = _parameters(arguments) if arguments.snapshots else {}
    config = tf.ConfigProto(device_filters=["/job:ps/task:0"])
    with tf.Session(f"grpc://{arguments.ps_host}", config=config) as session:
        while _read_step(session, global_step) < 1:
            time.sleep(_POLL_SECS)
        _record(arguments, session, global_step, parameters)
    os._exit(0)  # whose ps is being ended has nothing more to do at exit


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--ps_host", required=True)
    parser.add_argument("--model", default="models.mlp")
    parser.add_argument("--params", default="")
    parser.add_argument("--resource_variables", action="store_true", help="as ps_train has them; else reference ones")
    parser.add_argument("--snapshots", action="store_true", help="record the parameters too, which must be on ps 0")
    parser.add_argument("--batches_per_step", type=int, default=1, help="mini-batches in a global step")
    return parser.parse_args()


def _wait_for_port(address: str) -> None:
    """Returns when somebody listens there; whoever started this process ends it when that does not happen."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(_POLL_SECS)


def _parameters(arguments: argparse.Namespace) -> dict[str, tf.Variable]:
    features = tf.placeholder(tf.float32, [None, 784])
    plug_in.load(arguments.model, arguments.params).build(features, tf.placeholder(tf.int32, [None]), EVAL)
    return {variable.op.name: variable for variable in tf.trainable_variables()}


def _read_step(session: tf.Session, global_step: tf.Variable) -> int:
    try:
        return session.run(global_step)
    except _NOT_READY:  # the chief has not initialised it yet
        return 0


def _record(arguments: argparse.Namespace, session: tf.Session, global_step: tf.Variable, parameters: dict) -> None:
    recorder = options.recorder(arguments)
    is_over = False
    while not is_over:
        step, values = session.run([global_step, parameters])
        is_over = recorder.note(step * arguments.batches_per_step, lambda: values)  # noqa: B023 (called at once)
        time.sleep(recorder.pause_secs())


if __name__ == "__main__":
    main()
