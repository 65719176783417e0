"""What a mode costs in accuracy: the same number of examples as in the classic loop, the same model, several seeds.

Each run trains on exactly so many mini-batches (asynchronous workers may add one each); what counts is the checkpoint
at its end, on the test set. The mean over the seeds may be at most 0.3 points below that of the classic loop.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
from collections.abc import Mapping, Sequence

from benchmarks.harness import evaluation, machine, tool
from benchmarks.harness.catalogue import ASYNC, CLASSIC, K5, K20, PEERS, SYNC
from benchmarks.harness.tool import Trial

ALLOWED_LOSS = 0.003
_WHO = (CLASSIC, ASYNC, K5, K20, SYNC, f"{SYNC} K=5", f"{SYNC} K=20")
_MODELS = {"mlp": 0.003, "cnn": 0.001}  # with their learning rates


def main() -> int:
    """Runs the tool."""
    parser = tool.parser(__doc__, "accuracy")
    parser.add_argument("--mlp_batches", type=int, default=6000, help="of all workers; 600 are an epoch of MNIST")
    parser.add_argument("--cnn_batches", type=int, default=1800)
    parser.set_defaults(max_secs=400.0)
    arguments = parser.parse_args()
    trials = [_trial(arguments, model, name) for model in _MODELS for name in _WHO]
    work_dir = pathlib.Path(arguments.work_dir)
    skipped, failed = tool.run_missing(trials, arguments)
    found = {trial.name: _accuracies(work_dir, trial) for trial in trials}
    _write(pathlib.Path(arguments.out or work_dir), found, {**skipped, **failed})
    return 1 if failed else 0


def _trial(arguments: argparse.Namespace, model: str, name: str) -> Trial:
    setting = tool.setting(arguments, model=f"models.{model}", learning_rate=_MODELS[model],
                           train_batches=vars(arguments)[f"{model}_batches"])
    return Trial(f"{model}: {name}", PEERS[name], setting)


def _accuracies(work_dir: pathlib.Path, trial: Trial) -> list[float]:
    """Returns the accuracy of each finished run; one that is not evaluated yet is, and its checkpoint removed."""
    found, evaluator = [], None
    for folder in tool.finished(work_dir, trial):
        result = folder / "accuracy.json"
        if not result.exists():
            evaluator = evaluator or evaluation.Evaluator(
                trial.setting.data_dir, trial.setting.model, trial.setting.params)
            result.write_text(json.dumps(evaluator.accuracy_of_checkpoint(str(folder / "train"))), encoding="utf-8")
        found.append(json.loads(result.read_text(encoding="utf-8")))
    return found


def compare(found: Mapping[str, Sequence[float]]) -> list[dict]:
    """Returns a row for each name with a run: its accuracies, their mean, and that less the classic loop's."""
    rows = []
    for name, accuracies in found.items():
        classic = found.get(f"{name.partition(':')[0]}: {CLASSIC}")
        if accuracies:
            mean = statistics.mean(accuracies)
            rows.append({"name": name, "accuracies": list(accuracies), "mean": mean,
                         "difference": mean - statistics.mean(classic) if classic else None})
    return rows


def table(rows: Sequence[Mapping]) -> str:
    """Returns the rows as Markdown."""
    lines = [f"| | accuracy of each seed | mean | points from the {CLASSIC} | at most {100 * ALLOWED_LOSS:g} below |",
             "|---|---|---|---|---|"]
    for row in rows:
        each = ", ".join(f"{accuracy:.4f}" for accuracy in row["accuracies"])
        difference = row["difference"]
        points = "-" if difference is None else f"{100 * difference:+.2f}"
        verdict = "-" if difference is None else "yes" if difference >= -ALLOWED_LOSS else "**no**"
        lines.append(f"| {row['name']} | {each} | {row['mean']:.4f} | {points} | {verdict} |")
    return "\n".join(lines)


def _write(folder: pathlib.Path, found: Mapping[str, Sequence[float]], skipped: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows, about = compare(found), machine.describe()
    lines = [f"- {name}: skipped, {reason}" for name, reason in skipped.items()]
    text = "\n\n".join(["# Accuracy after the same number of examples", table(rows), *lines]) + "\n"
    (folder / "accuracy.md").write_text(text, encoding="utf-8")
    (folder / "accuracy.json").write_text(
        json.dumps({"machine": about, "results": rows, "skipped": dict(skipped)}, indent=1), encoding="utf-8")
    print(f"\n{text}\nwritten to {folder}/accuracy.md and .json")


if __name__ == "__main__":
    sys.exit(main())
