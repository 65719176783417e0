"""On a host, before any task starts: says what is installed there, finds free ports, and keeps them until it is ended.

    python -m ps_train.parts.ssh.probe COUNT FIRST_PORT  -->  one line of JSON
"""

from __future__ import annotations

import json
import platform
import signal
import sys
from collections.abc import Sequence
from typing import Any

from ps_train import __version__
from ps_train.cluster import ports
from ps_train.errors import ConfigError
from ps_train.runtime.installed import tensorflow_problem, tensorflow_version


def main(argv: Sequence[str]) -> int:
    """Prints what this host has, and waits for SIGTERM; then the ports are free again."""
    count, first = map(int, argv)
    version = tensorflow_version()
    found: dict[str, Any] = {"ps_train": __version__, "python": platform.python_version(), "tensorflow": version,
                             "fault": tensorflow_problem(version)}
    try:
        held = ports.hold_ports(count, first)
        found["ports"] = [holder.getsockname()[1] for holder in held]
        for holder in held:
            ports.let_server_bind(holder)
    except ConfigError as error:
        found["fault"] = found["fault"] or str(error)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print(json.dumps(found), flush=True)
    signal.sigwait({signal.SIGTERM})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
