"""What `ps_train status` prints: a value for JSON, and the same as lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ps_train.coordination.state import Snapshot, State
from ps_train.parts.control import ended
from ps_train.parts.control.looking import Look
from ps_train.parts.tables.files import upkeep

_STATES = {State.IDLE: "starting", State.RUNNING: "running", State.STOPPING: "ending", State.DONE: ended.FINISHED,
           State.FAILED: ended.FAILED}
UNREACHABLE = "unreachable"


def as_json(look: Look) -> dict[str, Any]:
    """Returns what was found, for JSON."""
    snapshot, about = look.snapshot, look.about
    step = int(snapshot.steps.max()) if snapshot is not None else look.ended.step if look.ended else None
    steps_per_sec = about.get("steps_per_sec") if snapshot is not None else None
    left = None if step is None or about.get("train_steps") is None else max(0, about["train_steps"] - step)
    return {
        "state": _STATES[snapshot.state] if snapshot is not None else look.ended.state if look.ended else UNREACHABLE,
        "why": look.ended.why if look.ended else "",
        "metrics": dict(look.ended.metrics) if look.ended else {},
        "step": step,
        "train_steps": about.get("train_steps"),
        "steps_per_sec": steps_per_sec,
        "eta_secs": left / steps_per_sec if left is not None and steps_per_sec else None,
        "workers": [] if snapshot is None else _workers(snapshot, about),
        "ps": [{"name": task.name, "address": task.address, "answers": task not in look.problems,
                "problem": look.problems.get(task, "")} for task in look.place.ps],
        "tables": about.get("tables", []) if snapshot is not None else [],
        "dropped_gradients": look.num_unused_gradients if about.get("is_sync") else None,
        "model": about.get("model"),
        "dataset": about.get("dataset"),
        "train_dir": about.get("train_dir") or look.place.train_dir,
        "checkpoint": look.checkpoint,
    }


def _workers(snapshot: Snapshot, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    named = {int(number): name for number, name in about.get("workers", {}).items()}
    numbers = sorted({*named, *(number for number in range(len(snapshot.claims)) if snapshot.claims[number])})
    front = int(snapshot.local_steps.max())
    return [{
        "name": named.get(number, [f"worker {number}", ""])[0],
        "address": named.get(number, ["", ""])[1],
        "state": _worker_state(snapshot, number),
        "last_beat_secs": round(snapshot.age_secs(number), 1) if snapshot.claims[number] else None,
        "step": int(snapshot.steps[number]),
        "local_steps": int(snapshot.local_steps[number]),
        "steps_behind": front - int(snapshot.local_steps[number]),
        "staleness": None if snapshot.staleness is None else round(float(snapshot.staleness[number]), 3),
    } for number in numbers]


def _worker_state(snapshot: Snapshot, number: int) -> str:
    if snapshot.finished[number]:
        return "finished"
    if not snapshot.claims[number]:
        return "not there"
    return "alive" if snapshot.is_alive(number) else "silent"


def as_lines(found: Mapping[str, Any]) -> str:
    """Returns the value of `as_json` as lines."""
    step = "step unknown" if found["step"] is None else f"step {found['step']}"
    is_within = found["train_steps"] and (found["step"] or 0) <= found["train_steps"]
    of_all = f" of {found['train_steps']}" if is_within else ""
    rate = f", {found['steps_per_sec']:.1f} steps/s" if found["steps_per_sec"] is not None else ""
    eta = f", {_duration(found['eta_secs'])} left" if found["eta_secs"] is not None else ""
    lines = [f"{found['state']}: {step}{of_all}{rate}{eta}"]
    if found["why"]:
        lines.append("; ".join([found["why"], *(f"{name} {value:.4g}" for name, value in sorted(
            found["metrics"].items()))]))
    if found["model"]:
        lines.append(f"{found['model']} on {found['dataset']}, in {found['train_dir']}")
    for ps in found["ps"]:
        lines.append(f"{ps['name']:<10} {ps['address']:<22} {'answers' if ps['answers'] else ps['problem']}")
    for worker in found["workers"]:
        beat = "" if worker["last_beat_secs"] is None else f", heard of {worker['last_beat_secs']:g} s ago"
        behind = f", {worker['steps_behind']} behind the first" if worker["steps_behind"] else ""
        stale = f", staleness {worker['staleness']:.2f}" if worker["staleness"] else ""
        lines.append(f"{worker['name']:<10} {worker['address']:<22} {worker['state']}{beat}, at step {worker['step']}, "
                     f"{worker['local_steps']} steps of its own{behind}{stale}")
    lines += [f"table {table['name']}: {upkeep.describe_share(table)}" for table in found["tables"]]
    if found["dropped_gradients"]:
        lines.append(f"gradients in no update (too late, or waiting): {found['dropped_gradients']}")
    if found["checkpoint"]:
        lines.append(f"newest checkpoint: {found['checkpoint']}")
    return "\n".join(lines)


def as_text(found: Mapping[str, Any], is_json: bool) -> str:
    """Returns what `status` prints."""
    return json.dumps(found) if is_json else as_lines(found)


def _duration(secs: float) -> str:
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
