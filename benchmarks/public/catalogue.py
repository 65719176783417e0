"""Which public jobs there are: reads `sets/catalogue.json` and the other sets into values."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import random
from collections.abc import Mapping, Sequence

_FOLDER = pathlib.Path(__file__).with_name("sets")
CATALOGUE = _FOLDER / "catalogue.json"
FIELD = _FOLDER / "field.json"
# The sets that were collected later, one after the other.
LATER = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth",
         "thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth", "nineteenth",
         "twentieth", "twentyfirst")
SETS = {"catalogue": CATALOGUE, "seen": FIELD, "unseen": FIELD, **{name: _FOLDER / f"{name}.json" for name in LATER}}
KINDS = ("supervisor-async", "supervisor-sync", "monitored-async", "monitored-sync", "estimator", "learn",
         "queue-runner", "in-graph", "keras", "horovod")


@dataclasses.dataclass(frozen=True)
class Job:
    """A script of a public repository, and how to start it as a small cluster.

    In `arguments`, `environment` and `tf_config`, `{data}` is the folder of the data sets, `{work}` a fresh folder,
    `{code}` the copy of `folder`, and `{stand_ins}` holds this project's stand-ins for packages. `{job}`, `{index}`,
    `{ps_hosts}`, `{worker_hosts}` and `{cluster}` (JSON) describe the task.

    Attributes:
      name: unique.
      repository: `owner/name` on GitHub.
      commit: 40 hexadecimal digits.
      folder: what is copied for a run, relative to the repository.
      script: what is run, relative to the working directory; for a module, its name behind `-m `; quoted as in a
        shell if there are blanks in it.
      kind: one of `KINDS`.
      tasks: job -> number of its tasks; the first `worker`, or the `chief` or `master`, is the chief.
      cluster_by: how a task learns of its cluster: `flags`, `TF_CONFIG`, `environment`, `script` (written
        into it), or `arguments` (flags of other names than the usual).
      arguments: of every task.
      options: of `ps_train run`, before the script.
      environment: of every task, beside that of this process.
      tf_config: further entries of TF_CONFIG.
      by_task: `ps`, `worker:1` and the like -> what is different for these tasks: another `script`, `arguments` behind
        those of all, and an `environment` over that of all.
      links: path in the copy of `folder`, `~/...` or `/tmp/...` -> data set.
      cwd: the working directory, relative to `folder`.
      deadline_secs: after it, tasks that still run count as "did not end".
      terminate_after_secs: a job without an end of its own: then every task gets SIGTERM, as when a pod is deleted.
      note: what a reader should know.
    """

    name: str
    repository: str
    commit: str
    folder: str
    script: str
    kind: str
    tasks: Mapping[str, int]
    cluster_by: str = "flags"
    arguments: Sequence[str] = ()
    options: Sequence[str] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tf_config: Mapping[str, str] = dataclasses.field(default_factory=dict)
    by_task: Mapping[str, Mapping] = dataclasses.field(default_factory=dict)
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cwd: str = "."
    deadline_secs: float = 180.0
    terminate_after_secs: float | None = None
    note: str = ""


def load(only: Sequence[str] = (), set_name: str = "catalogue") -> list[Job]:
    """Returns the jobs of a set whose name begins with one of the names in `only`; all for ().

    Args:
      only: beginnings of names.
      set_name: `catalogue`, the jobs that ps_train was written with; a half of `field.json`, jobs of which nobody had
        run one when the lot was drawn: `seen`, by whose failures ps_train was changed, and `unseen`; or one of
        `LATER`, jobs of which nobody had run one when they were written down.

    Raises:
      ValueError: a name fits no job.
    """
    entries = json.loads(SETS[set_name].read_text(encoding="utf-8"))
    jobs = [Job(commit=entries["commits"][entry["repository"]], **entry) for entry in entries["jobs"]]
    if SETS[set_name] == FIELD:
        seen = draw([job.name for job in jobs], entries["seed"])
        jobs = [job for job in jobs if (job.name in seen) == (set_name == "seen")]
    for name in only:
        if not any(job.name.startswith(name) for job in jobs):
            raise ValueError(f"no job is called {name!r}; there are {', '.join(job.name for job in jobs)}")
    return [job for job in jobs if not only or job.name.startswith(tuple(only))]


def draw(names: Sequence[str], seed: int) -> list[str]:
    """Returns the sorted half of the names that the lot puts first."""
    order = sorted(names)
    random.Random(seed).shuffle(order)
    return sorted(order[:len(order) // 2])


def clone_commands(jobs: Sequence[Job], corpus: str) -> list[str]:
    """Returns the shell commands that put the jobs' repositories in place."""
    places = {job.repository: job.commit for job in jobs}
    return [f"git clone https://github.com/{repository} {corpus}/{repository} && "
            f"git -C {corpus}/{repository} checkout {commit}" for repository, commit in sorted(places.items())]
