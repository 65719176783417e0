"""What is measured: DeepFM with every peer, the same step at growing numbers of rows, and what is claimed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from benchmarks.harness import proc
from benchmarks.harness.tool import Trial
from benchmarks.harness.trial import Peer, Setting
from benchmarks.recommender import peers
from benchmarks.recommender.figures import Ratio
from benchmarks.recommender.work import Work

CLASSIC_26, CLASSIC_1 = "classic loop, 26 tables", "classic loop, 1 table"
_STRATEGY, _PYTORCH = "ParameterServerStrategy, 25 a closure", "PyTorch, one process, 1 thread"
_SINGLE, _AT_ONCE, _K8 = "ps_train", "ps_train 8 at once", "ps_train K=8"
_MODES = {_SINGLE: (), _AT_ONCE: ("--steps_per_execution=8",), _K8: ("--communication_period=8",)}
_BFLOAT16 = ("--wire_dtype=bfloat16", "--embedding_wire_dtype=bfloat16")
_OTHER_MODES = {"ps_train K=32": ("--communication_period=32",), "ps_train sync": ("--sync_replicas",),
                "ps_train sync, async rows": ("--sync_replicas", "--async_embeddings"),
                "ps_train, bfloat16": _BFLOAT16, "ps_train K=8, bfloat16": ("--communication_period=8", *_BFLOAT16),
                "ps_train K=32, bfloat16": ("--communication_period=32", *_BFLOAT16)}
_PEERS: dict[str, tuple[Peer, bool]] = {  # name -> peer, whether its table is dynamic
    CLASSIC_26: (peers.classic(26), False),
    CLASSIC_1: (peers.classic(1), False),
    "ParameterServerStrategy, 1 a closure": (peers.strategy(1), False),
    _STRATEGY: (peers.strategy(25), False),
    "PyTorch, one process": (peers.pytorch(0), False),
    _PYTORCH: (peers.pytorch(1), False),
    "no communication": (peers.no_communication(), False),
    **{name: (peers.ps_train(*flags), False) for name, flags in {**_MODES, **_OTHER_MODES}.items()},
    **{f"{name}, dynamic": (peers.ps_train(*flags), True) for name, flags in _MODES.items()},
}
CLAIMS = (
    Ratio(_SINGLE, CLASSIC_26, "examples_per_sec", ">=", 2.5),
    Ratio(_K8, CLASSIC_26, "examples_per_sec", ">=", 5),
    Ratio(_SINGLE, CLASSIC_1, "examples_per_sec", ">=", 2),
    Ratio(_K8, _PYTORCH, "examples_per_sec", ">=", 2),
    Ratio(_K8, _STRATEGY, "examples_per_sec", ">=", 3),
)

# Name -> peer, optimizer, whether its table is dynamic, bytes per row: values and slots of 8 floats, and marks or keys.
_SWEPT: dict[str, tuple[Peer, str, bool, int]] = {
    "lazy adam": (peers.ps_train(), "adam", False, 100),
    "adagrad": (peers.ps_train(), "adagrad", False, 68),
    "adagrad, dynamic": (peers.ps_train(), "adagrad", True, 160),
    "classic loop, adagrad": (peers.classic(1), "adagrad", False, 64),
    "classic loop, adam": (peers.classic(1), "adam", False, 192),  # two more tables while it computes
}
_MOST_ROWS = {"classic loop, adam": 10**7}  # where a step took 282 ms on the ps alone
_DIM = 8
_PAGE_BYTES = 4096
_BATCH_SIZE = 512
_MEMORY_SHARE = 0.7  # of what is free


def compared(base: Setting, num_ids: int, layers: str = "256x128") -> list[Trial]:
    """Returns a trial for each peer, on so many ids, with such hidden layers."""
    setting = dataclasses.replace(base, batch_size=_BATCH_SIZE, optimizer="adagrad", learning_rate=0.02)
    works = {name: Work(num_ids=num_ids, layers=layers, is_dynamic=is_dynamic)
             for name, (_, is_dynamic) in _PEERS.items()}
    return [Trial(name, peer, dataclasses.replace(setting, params=works[name].params))
            for name, (peer, _) in _PEERS.items()]


def counting(trials: Iterable[Trial]) -> list[Trial]:
    """Returns a short trial beside each one, in which transfers are counted."""
    return [Trial(f"calls of {trial.name}", peers.counting(trial.peer), dataclasses.replace(
        trial.setting, batches=min(400, 2 * trial.setting.batches), min_secs=2.0)) for trial in trials]


def swept(base: Setting, counts: Iterable[int]) -> tuple[dict[str, list[Trial]], dict[str, str]]:
    """Returns name -> trials at growing numbers of rows, and name -> why a trial is left out."""
    found: dict[str, list[Trial]] = {}
    left_out = {}
    free_mb = proc.free_memory_mb()
    for rows in sorted(counts):
        for name, (peer, optimizer, is_dynamic, row_bytes) in _SWEPT.items():
            full_name, needed_mb = f"{rows:.0e} rows: {name}".replace("e+0", "e"), rows * row_bytes / 2**20
            if rows > _MOST_ROWS.get(name, rows):
                left_out[full_name] = "each step would take seconds"
            elif free_mb and needed_mb > _MEMORY_SHARE * free_mb:
                left_out[full_name] = f"needs {needed_mb:,.0f} MB, and {free_mb:,.0f} are free"
            else:
                # A dynamic table has to see every id; a fixed one has all of its memory when each page was written.
                fill = 1 if is_dynamic else max(1, _PAGE_BYTES // row_bytes // 2)
                work = Work(num_ids=rows, dim=_DIM, layers="", is_dynamic=is_dynamic, fill=fill)
                filling = 0 if peer is _SWEPT["classic loop, adam"][0] else rows // (fill * _BATCH_SIZE * 26)
                found.setdefault(name, []).append(Trial(full_name, peer, dataclasses.replace(
                    base, batch_size=_BATCH_SIZE, optimizer=optimizer,
                    learning_rate=0.001, num_workers=1, params=work.params, batches=100 + 3 * filling,
                    max_secs=300.0)))
    return found, left_out
