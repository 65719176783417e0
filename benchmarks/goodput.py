"""Goodput: the share of the possible steps that a training takes while its tasks are killed, and of its peers.

    python -m benchmarks.goodput [--data_dir=DIR] [--kills=2] [--pause_ms=20] [--only='ps_train launch']

2 ps and 2 workers (under torchrun 2 workers) train, undisturbed and with a kill in turn: of a worker, the chief among
them, and of a ps, once a minute and once in 15 s. Possible is what the same cluster does undisturbed, before and behind
the kill. The state is saved every second. A pause after each step stands for the time of a larger one, so that tasks
which share a few cores hardly wait for each other; --pause_ms=0 trains as fast as the cores allow.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness import catalogue, killing, machine, measures, report, tool
from benchmarks.harness.catalogue import CLASSIC
from benchmarks.harness.tool import Trial
from benchmarks.harness.trial import Cast, Peer, Setting, Task
from benchmarks.harness.wires import Wires

LAUNCH, LAUNCH_TABLES, PS_TRAIN, ELASTIC = "ps_train launch", "ps_train launch, tables", "ps_train", "torchrun, DDP"
PERIODS_SECS = {"once a minute": 60.0, "once in 15 s": 15.0}
WANTED = {("once a minute", "worker"): 0.97, ("once a minute", "ps"): 0.95}
_MANY = 10**9
_CLICKS = {"model": "models.deepfm", "params": "source=clicks,vocab=100000,layers=32"}
_DIGITS, _MNIST = ({"model": "models.mlp", "params": f"source={source}"} for source in ("digits", "mnist"))
_COLUMNS = (
    report.Column("goodput", "goodput", "{:.3f}"),
    report.Column("still_secs", "no step in the cluster, s", "{:.1f}"),
    report.Column("repeated_secs", "steps repeated, s", "{:.1f}"),
    report.Column("others_cores", "cores taken by others", "{:.2f}"),
)


def main() -> int:
    """Runs the tool."""
    arguments = _parser().parse_args()
    work_dir = pathlib.Path(arguments.work_dir)
    plans: dict[str, tuple[Sequence[str], float]] = {}
    trials = []
    for name, peer, setting, victims in _peers(arguments):
        for period, period_secs in PERIODS_SECS.items():
            plans[f"{name}, {period}"] = [victim for victim in victims for _ in range(arguments.kills)], period_secs
            trials.append(Trial(f"{name}, {period}", peer._replace(name=f"{name}, {period}"), setting))
    skipped, failed = tool.run_missing(
        trials, arguments, lambda peer, setting, folder: killing.run(peer, setting, folder, *plans[peer.name]))
    kills = {trial.name: [kill for folder in tool.finished(work_dir, trial) for kill in kills_of(folder)]
             for trial in trials}
    _write(pathlib.Path(arguments.out or work_dir), kills, {**skipped, **failed})
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = tool.parser(__doc__, "goodput")
    parser.set_defaults(repeats=1, min_secs=8.0)
    parser.add_argument("--kills", type=int, default=2, help="of each job in a run")
    parser.add_argument("--pause_ms", type=float, default=20.0, help="after each step of a worker")
    return parser


def _peers(arguments: argparse.Namespace) -> list[tuple[str, Peer, Setting, Sequence[str]]]:
    """Returns for each peer its name, the peer, its setting, and the jobs whose tasks are killed."""
    base = tool.setting(arguments, num_ps=2, train_batches=_MANY, has_accuracy=False)
    pause_secs = arguments.pause_ms / 1000
    digits, clicks = (dataclasses.replace(base, **{**work, "params": f"{work['params']},pause_secs={pause_secs}"})
                      for work in (_MNIST if base.data_dir else _DIGITS, _CLICKS))
    both = ("worker", "ps")
    return [(LAUNCH, Peer(LAUNCH, _launched), digits, both),
            (LAUNCH_TABLES, Peer(LAUNCH_TABLES, _launched), clicks, both),
            (PS_TRAIN, Peer(PS_TRAIN, _tasks), digits, both),
            (CLASSIC, _classic(pause_secs), base, both),
            (ELASTIC, _elastic(pause_secs), base, ("worker",))]


def _flags(setting: Setting) -> list[str]:
    saves = (["--save_model_secs=10", "--save_delta_secs=1"] if setting.model == _CLICKS["model"]
             else ["--save_model_secs=1"])
    return ["--dataset=benchmarks.harness.paced", "--log_steps=1", f"--learning_rate={setting.learning_rate}",
            f"--batch_size={setting.batch_size}", "--save_summaries_steps=0", *saves,
            *([f"--data_dir={setting.data_dir}"] if setting.data_dir else [])]


def _launched(setting: Setting, folder: str) -> Cast:
    """Returns the launcher, which starts lost tasks again."""
    command = ["-m", "ps_train", "launch", f"--num_ps={setting.num_ps}", f"--num_workers={setting.num_workers}",
               f"--max_restarts={_MANY}", f"--model={setting.model}", f"--params={setting.params}", *_flags(setting),
               f"--train_steps={_MANY}", f"--train_dir={folder}/train", f"--log_dir={folder}/tasks"]
    notes = {"XDG_STATE_HOME": f"{folder}/state"}  # of the folder of the newest launch
    return Cast([Task("launcher", command, notes)], "launcher", Wires(0, 0))


def _tasks(setting: Setting, folder: str) -> Cast:
    """Returns the tasks, each of which is started again at once."""
    return catalogue.with_ps(setting, folder, ["-m", "ps_train", *_flags(setting)], 1, [])


def _classic(pause_secs: float) -> Peer:
    def cast(setting: Setting, folder: str) -> Cast:
        command = ["-m", "benchmarks.classic", *setting.common_flags(), "--save_secs=1", f"--pause_secs={pause_secs}"]
        return catalogue.with_ps(setting, folder, command, 1, [])

    return Peer(CLASSIC, cast)


def _elastic(pause_secs: float) -> Peer:
    def cast(setting: Setting, folder: str) -> Cast:
        command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={setting.num_workers}",
                   f"--max-restarts={_MANY}", "--redirects=3", f"--log-dir={folder}/tasks", "-m", "benchmarks.elastic",
                   *setting.common_flags(), f"--snapshot={os.path.join(folder, 'snapshot')}", "--save_secs=1",
                   f"--pause_secs={pause_secs}"]
        # Without this, a run hung after a restart (PyTorch 2.13); the cause was not isolated.
        environ = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return Cast([Task("launcher", command, environ)], "launcher", Wires(0, 0))

    return Peer(ELASTIC, cast)


def kills_of(folder: pathlib.Path) -> list[killing.Kill]:
    """Returns what each kill of a run has cost."""
    return [killing.Kill(**kill) for kill in json.loads((folder / "run.json").read_text(encoding="utf-8"))["kills"]]


def table(found: Mapping[str, Sequence[killing.Kill]]) -> str:
    """Returns the medians of the kills of each job as Markdown, with the least and the greatest in brackets."""
    lines = ["| | killed | kills | " + " | ".join(column.heading for column in _COLUMNS) + " | wanted |",
             "|---" * (len(_COLUMNS) + 4) + "|"]
    for name, kills in found.items():
        for victim in sorted({kill.victim for kill in kills}, reverse=True):
            of_victim = [kill for kill in kills if kill.victim == victim]
            cells = [report.cell(measures.spread([getattr(kill, column.key) for kill in of_victim]), column.form)
                     for column in _COLUMNS]
            wanted = WANTED.get((name.rpartition(", ")[2], victim), "")
            lines.append(f"| {name} | {victim} | {len(of_victim)} | {' | '.join(cells)} | {wanted} |")
    return "\n".join(lines)


def _write(folder: pathlib.Path, kills: Mapping[str, Sequence[killing.Kill]], left_out: Mapping[str, str]) -> None:
    about = machine.describe()
    lines = [f"- {name}: left out, {reason}" for name, reason in left_out.items()]
    text = "\n\n".join(["# Goodput", ", ".join(f"{key} {value}" for key, value in about.items()) + ".",
                        table(kills), *lines]) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "goodput.md").write_text(text, encoding="utf-8")
    results = {name: [kill._asdict() for kill in of_trial] for name, of_trial in kills.items()}
    (folder / "goodput.json").write_text(
        json.dumps({"machine": about, "results": results, "left_out": dict(left_out)}, indent=1), encoding="utf-8")
    print(f"\n{text}\nwritten to {folder}/goodput.md and .json")


if __name__ == "__main__":
    sys.exit(main())
