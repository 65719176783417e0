"""Serves the newest rows of a training: a gRPC server around ps_train.LiveModel.

    python server.py served 8500       the folder of `ps_train publish`, and a port of this machine

It has the Predict call of TensorFlow Serving, so any client of that can ask it. It follows the folder by itself.
"""

from __future__ import annotations

import contextlib
import sys
import threading

import ps_train


def main(folder: str, port: int) -> None:
    """Serves until it is interrupted."""
    with ps_train.LiveModel(folder) as model, ps_train.predict_server(model, port) as port:
        model.follow(poll_secs=0.5)
        print(f"serving {folder} at localhost:{port}, at push {model.status()['number']}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
