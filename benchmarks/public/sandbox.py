"""Fresh folders for a job, and where the machine permits it a network and a /tmp of its own.

Public scripts have ports and folders such as /tmp/train_logs written in. In a network namespace two jobs cannot meet,
and nothing outside can be reached; in a mount namespace their /tmp is a folder that is removed with the others.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from benchmarks.public.catalogue import Job

REPO = str(pathlib.Path(__file__).resolve().parents[2])
_ENTER = 'mount --bind "$0" /tmp && exec "$@"'  # in a mount namespace of the task's own


@dataclasses.dataclass(frozen=True)
class Sandbox:
    """Where a job runs.

    Attributes:
      work: a fresh folder for what it writes; the others are in it.
      code: the copy of the job's folder.
      home: its home folder.
      data: the data sets; shared, not copied.
      prefix: the words that run the command behind them inside.
    """

    work: str
    code: str
    home: str
    data: str
    prefix: tuple[str, ...]


@contextlib.contextmanager
def sandbox(job: Job, corpus: str, work: str) -> Iterator[Sandbox]:
    """Yields a fresh Sandbox for a job; its network is removed afterwards, its folders are kept.

    Raises:
      FileNotFoundError: the job's repository is not in the corpus.
    """
    shutil.rmtree(work, ignore_errors=True)
    source = os.path.join(corpus, job.repository, job.folder)
    code, home, temporary = (os.path.join(work, name) for name in ("code", "home", "tmp"))
    shutil.copytree(source, code, ignore=shutil.ignore_patterns(".git"), symlinks=True)
    for folder in (home, temporary):
        os.makedirs(folder)
    data = os.path.join(corpus, "data")
    for name, target in job.links.items():
        link = os.path.join(code, name)
        for start, folder in (("~/", home), ("/tmp/", temporary)):
            link = os.path.join(folder, name.removeprefix(start)) if name.startswith(start) else link
        os.makedirs(os.path.dirname(link), exist_ok=True)
        if os.path.isdir(os.path.join(data, target)):
            shutil.copytree(os.path.join(data, target), link, dirs_exist_ok=True)
        else:
            shutil.copy(os.path.join(data, target), link)
    with _network() as prefix:
        inside = (*prefix, "unshare", "--mount", "sh", "-c", _ENTER, temporary) if prefix else ()
        yield Sandbox(work, code, home, data, inside)


@contextlib.contextmanager
def _network() -> Iterator[tuple[str, ...]]:
    """Yields the words that run a command in a new network namespace, none where there can be no such thing."""
    name = f"pstrain{os.getpid()}public"
    made = os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("unshare") is not None and \
        subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    if not made:
        yield ()
        return
    try:
        subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
        yield ("ip", "netns", "exec", name)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)
