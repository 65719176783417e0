"""What the jobs came to, as JSON and as a Markdown table."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence

from benchmarks.public.catalogue import Job
from benchmarks.public.running import Ended, Result

BEGIN, END = "<!-- scripts: written by benchmarks.public_scripts --document -->", "<!-- end of scripts -->"


def write(folder: str, how: str, jobs: Sequence[Job], results: Sequence[Result]) -> None:
    """Writes `HOW.json` and `HOW.md` into a folder; results of jobs that were not run this time are kept."""
    path = pathlib.Path(folder, f"{how}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = {job.name: old[job.name] for job in jobs if job.name in old}
    new: dict[str, list] = {}
    for result in results:
        new.setdefault(result.name, []).append(
            {**dataclasses.asdict(result), "is_well": result.is_well, "workers_are_well": result.workers_are_well})
    kept.update(new)
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    all_results = [_result(run) for runs in kept.values() for run in runs]
    path.with_suffix(".md").write_text(table(how, jobs, all_results), encoding="utf-8")


def _result(run: dict) -> Result:
    return Result(run["name"], run["how"], run["secs"], [Ended(**task) for task in run["tasks"]])


def table(how: str, jobs: Sequence[Job], results: Sequence[Result]) -> str:
    """Returns a row for each run, and how many ended well."""
    kinds = {job.name: job for job in jobs}
    lines = [f"# Public scripts, {how}", "",
             f"Every process ended with 0: {sum(result.is_well for result in results)} of {len(results)}. "
             f"Every worker did: {sum(result.workers_are_well for result in results)}.", "",
             "| job | kind | s | tasks | last line of the first that failed |", "|---|---|---|---|---|"]
    for result in sorted(results, key=lambda result: result.name):
        failed = next((task for task in result.tasks if not task.is_well and not task.name.startswith("ps")),
                      next((task for task in result.tasks if not task.is_well), None))
        why = "" if failed is None else f"{failed.name}: {failed.last_line}".replace("|", "/")
        kind = kinds[result.name].kind if result.name in kinds else ""
        lines.append(f"| {result.name} | {kind} | {result.secs:g} | {_codes(result.tasks)} | {why} |")
    return "\n".join(lines) + "\n"


def _codes(tasks: Sequence[Ended]) -> str:
    return ", ".join(f"{task.name} {'did not end' if task.exit_code is None else task.exit_code}" for task in tasks)


def comparison(folder: str, jobs: Sequence[Job]) -> str:
    """Returns a table of how each job ended as it is, and under `ps_train run`, from the results in a folder."""
    found = {how: {name: _result(runs[-1]) for name, runs in json.loads(
        pathlib.Path(folder, f"{how}.json").read_text(encoding="utf-8")).items()} for how in ("plain", "run")}
    lines = ["| repository | script | kind | tasks | plain TensorFlow | `ps_train run` |", "|---|---|---|---|---|---|"]
    for job in sorted(jobs, key=lambda job: (job.repository.lower(), job.name)):
        tasks = ", ".join(f"{count} {name}" for name, count in job.tasks.items())
        ends = " | ".join(_end(job, found[how].get(job.name)) for how in ("plain", "run"))
        lines.append(f"| {job.repository} | {job.name} | {job.kind} | {tasks} | {ends} |")
    return "\n".join(lines)


def _end(job: Job, result: Result | None) -> str:
    if result is None:
        return "not run"
    codes = {task.exit_code for task in result.tasks}
    if job.terminate_after_secs is not None and codes == {143}:
        return "it has no end: trains until SIGTERM, then all exit with 143"
    if len(codes) == 1 and None not in codes:
        return f"all exit with {codes.pop()}"
    return ", ".join(f"{task.name} {'does not end' if task.exit_code is None else f'exits with {task.exit_code}'}"
                     for task in result.tasks if not task.is_well)


def write_comparison(document: str, folder: str, jobs: Sequence[Job]) -> None:
    """Writes the table between the two marks of a document."""
    path = pathlib.Path(document)
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    _, after = rest.split(END)
    path.write_text(f"{before}{BEGIN}\n\n{comparison(folder, jobs)}\n\n{END}{after}", encoding="utf-8")
