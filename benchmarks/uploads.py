"""What an upload to an object store costs a training: its steps a second while one runs, and while none does.

    python -m benchmarks.uploads [--num_rows=1000000] [--latency_ms=50] [--mb_per_sec=50] [--secs=180]

A ps and a worker touch rows of a table of 8 floats with adagrad, and save every --save_secs. Their --train_dir is in
moto's S3 server, a process on this machine behind a proxy: the latency is that of an answer, the bandwidth that of each
direction. Server and proxy take CPU time from the training, which a real store does not. Every 20 ms the tool notes
what the chief does and to which step the newest line of its log belongs, so the rates are of the same training.

    save      a checkpoint is being written to the folder on this machine
    upload    none is written, and one is sent
    neither   the training has the machine for itself
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from unittest import mock

from ps_train.config.folders import local_folder
from tests.processes import ProcessGroup, TaskCluster, free_ports
from tests.proxy import Proxy

_URL = "s3://trained/run"
_POLL_SECS = 0.02
_START_SECS, _SERVER_SECS = 120.0, 60.0
_STEP = re.compile(r"step (\d+) of ")
_UPLOADED = re.compile(r"uploaded \S+, (\S+ \w?B) in (\S+) s")
_MAKE_BUCKET = "import boto3; boto3.client('s3').create_bucket(Bucket='trained')"


@contextlib.contextmanager
def distant_store(latency_ms: float, mb_per_sec: float, folder: pathlib.Path) -> Iterator[None]:
    """Serves S3 behind a slow link while its body runs; the environment of this process has its address."""
    [port] = free_ports(1)
    with open(folder / "moto.log", "wb") as log, Proxy(port) as proxy:
        server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log)
        environ = {"AWS_ENDPOINT_URL": f"http://{proxy.address}", "AWS_ACCESS_KEY_ID": "testing",
                   "AWS_SECRET_ACCESS_KEY": "testing-secret", "AWS_DEFAULT_REGION": "us-east-1"}
        try:
            with mock.patch.dict(os.environ, environ):
                end_secs = time.monotonic() + _SERVER_SECS
                while subprocess.run([sys.executable, "-c", _MAKE_BUCKET], stderr=log, check=False).returncode:
                    if time.monotonic() > end_secs:
                        sys.exit(f"moto's server does not answer\n{(folder / 'moto.log').read_text()}")
                proxy.delay(latency_ms / 2000)
                proxy.throttle(1e6 * mb_per_sec)
                yield
        finally:
            server.kill()
            server.wait()


def activity(folder: pathlib.Path) -> str:
    """Returns what the chief does beside its steps, by the files in its folder."""
    if any(folder.glob("*_temp")):
        return "save"
    return "upload" if any(folder.glob(".upload/*")) else "neither"


def watch(group: ProcessGroup, folder: pathlib.Path, secs: float) -> dict[str, tuple[int, float]]:
    """Returns activity -> (steps, seconds) of this time."""
    steps, times = collections.Counter(), collections.Counter()
    read_bytes, last_step, last_secs = 0, None, time.monotonic()
    end_secs = last_secs + secs
    while time.monotonic() < end_secs:
        time.sleep(_POLL_SECS)
        doing, now_secs = activity(folder), time.monotonic()
        text, read_bytes = group.log_from("worker-0", read_bytes)
        times[doing] += now_secs - last_secs
        last_secs = now_secs
        for step in map(int, _STEP.findall(text)):
            steps[doing] += step - (step if last_step is None else last_step)
            last_step = step
    return {doing: (steps[doing], times[doing]) for doing in ("neither", "upload", "save")}


def measure(options: argparse.Namespace, folder: pathlib.Path) -> str:
    """Trains, and returns the table."""
    flags = ["--model=benchmarks.touched_rows", "--dataset=benchmarks.touched_rows", f"--train_dir={_URL}",
             f"--params=num_rows={options.num_rows},dim=8,num_sampled=100", "--embedding_optimizer=adagrad",
             f"--batch_size={options.batch_size}", f"--log_steps={options.log_steps}", "--train_steps=100000000",
             f"--save_model_secs={options.save_secs}", "--save_summaries_steps=0", "--start_timeout_secs=300"]
    environ = {"TMPDIR": str(folder)}
    with distant_store(options.latency_ms, options.mb_per_sec, folder), mock.patch.object(
            tempfile, "tempdir", str(folder)), ProcessGroup(folder / "logs") as group:
        TaskCluster(1, 1).start(group, flags, env=environ, is_exec=True)
        group.wait_for_line("worker-0", "uploaded ", _START_SECS)
        rates = watch(group, pathlib.Path(local_folder(_URL)), options.secs)
        uploads = _UPLOADED.findall(group.log("worker-0"))
    lines = ["| the chief also | steps | seconds | steps/s |", "|---|---|---|---|"]
    lines += [f"| {doing} | {steps:,} | {secs:.1f} | {steps / secs if secs else 0:.0f} |"
              for doing, (steps, secs) in rates.items()]
    return "\n".join([*lines, "", "uploads: " + ", ".join(f"{size} in {secs} s" for size, secs in uploads)])


def main(argv: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.uploads", description=__doc__.partition("\n")[0])
    parser.add_argument("--num_rows", type=int, default=1_000_000)
    parser.add_argument("--batch_size", type=int, default=1000, help="rows that a step touches")
    parser.add_argument("--latency_ms", type=float, default=50.0)
    parser.add_argument("--mb_per_sec", type=float, default=50.0)
    parser.add_argument("--save_secs", type=int, default=20)
    parser.add_argument("--log_steps", type=int, default=10)
    parser.add_argument("--secs", type=float, default=180.0, help="how long to watch")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        print(measure(options, pathlib.Path(folder)))


if __name__ == "__main__":
    main(sys.argv[1:])
