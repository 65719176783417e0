"""Stands in for the Java process that Shifu on YARN starts beside each task: listens where the task reports to."""

import os
import socket
import threading


def _drain(server):
    connection, _ = server.accept()
    while connection.recv(4096):
        pass


if "SOCKET_SERVER_PORT" in os.environ:
    _server = socket.socket()
    _server.bind(("127.0.0.1", int(os.environ["SOCKET_SERVER_PORT"])))
    _server.listen()
    threading.Thread(target=_drain, args=(_server,), daemon=True).start()
