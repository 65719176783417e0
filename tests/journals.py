"""The events of a journal, for tests of what is read from it."""

from __future__ import annotations

RUN = {"model": "models.<b>", "dataset": "digits", "train_steps": 100, "command": ["--optimizer=adam", "--x=a b"],
       "ps": {"0": "h:1", "1": "h:2"}, "workers": {"0": ["worker:0", "h:3"], "1": ["worker:1", "h:4"]}}
PLACED = {"ps_bytes": {"0": 4_000_000, "1": 8_000_000}, "num_variables": 3,
          "largest": [{"name": "weights", "ps": 1, "bytes": 8_000_000}], "tables": [
              {"name": "users", "rows": None, "dim": 16}]}
EVENTS = [
    {"time": 1000.0, "event": "start", "run": RUN, "placed": PLACED},
    {"time": 1001.0, "event": "session", "source": "new parameters", "step": 0},
    {"time": 1002.0, "event": "worker", "name": "worker:1", "what": "joined", "step": 3},
    {"time": 1005.0, "event": "sample", "step": 30, "workers": {
        "worker:0": {"steps": 10, "staleness": 0.5}, "worker:1": {"steps": 20, "staleness": 1.5}}},
    {"time": 1007.0, "event": "lost", "reason": "Connection reset", "gone": ["ps:1"], "step": 40},
    {"time": 1008.0, "event": "session", "source": "/t/model.ckpt-30", "step": 40},
    {"time": 1009.0, "event": "of a later version", "step": 41},
    {"time": 1010.0, "event": "sample", "step": 60, "workers": {
        "worker:0": {"steps": 15, "staleness": 0.5}, "worker:1": {"steps": 45, "staleness": 1.5}}},
    {"time": 1012.0, "event": "end", "why": "the global step reached train_steps", "step": 100},
]


def moved(events, secs, **run):
    """Returns events at a later time, with other flags."""
    return [{**event, "time": event["time"] + secs, **({"run": {**event["run"], **run}} if "run" in event else {})}
            for event in events]
