"""Stands in for NVIDIA's dllogger: prints what is logged if there are backends."""

import types

Verbosity = types.SimpleNamespace(VERBOSE=2)
_BACKENDS = []


def _log(step, data):
    if _BACKENDS:
        print(step, data, flush=True)


JSONStreamBackend = StdOutBackend = dict
init, log = lambda backends: _BACKENDS.extend(backends), _log
metadata = flush = lambda *_: None
