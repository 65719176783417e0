"""What many workers cost ps 0 without training: heartbeats, and reading the state of all of them.

    python -m benchmarks.board_load [--workers=1,16,64,128] [--secs=20]

ps 0 is a real task. The workers are threads of a few processes: each claims its number and sends heartbeats as a task
does, through the server of its process. Nothing is trained, so all of the CPU time is that of coordination. Every
worker also has a server in a cluster; here a process stands for up to 64 of them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, NamedTuple

from benchmarks.harness import proc
from ps_train.cluster.spec import Cluster
from ps_train.coordination import blackboard
from ps_train.coordination.heartbeat import HEARTBEAT_SECS, Heartbeat, WorkerProgress
from ps_train.runtime import clock
from ps_train.tasks import setup
from tests import cached_boards
from tests.processes import free_ports

_PER_PROCESS = 64
_START_SECS = 600.0
_NUM_READS = 200


class Load(NamedTuple):
    """CPU time in ms for each second, and how long a task waits for a snapshot of all workers."""

    ps_ms: float
    workers_ms: float
    snapshot_ms: list[float]


def measure(num_workers: int, secs: float) -> Load:
    """Starts ps 0 and so many workers, and measures for some seconds once all of them have claimed their numbers."""
    firsts = range(0, num_workers, _PER_PROCESS)
    ports = free_ports(1 + len(firsts))
    addresses = {number: f"localhost:{port}" for number, port in zip(firsts, ports[1:])}
    hosts = ",".join(addresses.get(number, f"localhost:{number + 1}") for number in range(num_workers))
    flags = [f"--ps_hosts=localhost:{ports[0]}", f"--worker_hosts={hosts}"]
    with contextlib.ExitStack() as stack, tempfile.TemporaryFile("w+") as log:
        def start(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen([sys.executable, "-m", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=log, text=True)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        ps = start("ps_train", *flags, "--job_name=ps", "--task_index=0", f"--start_timeout_secs={_START_SECS}")
        workers = [start("benchmarks.board_load", *flags, f"--first={first}") for first in firsts]
        for process in workers:
            _answer(process, log)
        pids = [ps.pid, *(process.pid for process in workers)]
        before, start_secs = [proc.cpu_secs(pid) for pid in pids], time.monotonic()
        time.sleep(secs)  # the period that is measured
        after, elapsed_secs = [proc.cpu_secs(pid) for pid in pids], time.monotonic() - start_secs
        rates = [1000 * (end - begin) / elapsed_secs for begin, end in zip(before, after)]
        workers[0].stdin.write("read\n")
        workers[0].stdin.flush()
        return Load(rates[0], sum(rates[1:]), [float(word) for word in _answer(workers[0], log).split()])


def _answer(process: subprocess.Popen[str], log: IO[str]) -> str:
    """Returns the next line of a process; raises RuntimeError with its log if it has ended."""
    if line := process.stdout.readline().strip():
        return line
    log.seek(0)
    raise RuntimeError(f"a process of workers has ended\n{log.read()}")


def be_workers(ps_hosts: str, worker_hosts: Sequence[str], first: int) -> None:
    """Is the workers from `first` on until its input ends; prints how long reads take for each line of that."""
    cached_boards.install()
    numbers = range(first, min(first + _PER_PROCESS, len(worker_hosts)))
    cluster = Cluster("worker", first, {"ps": dict(enumerate(ps_hosts.split(","))),
                                        "worker": dict(enumerate(worker_hosts))})
    target = setup.start(cluster, 0)
    with contextlib.ExitStack() as stack:
        visitor = stack.enter_context(contextlib.closing(blackboard.for_client(cluster)))
        for number in numbers:
            board = stack.enter_context(contextlib.closing(blackboard.for_worker(target, cluster)))
            heartbeat = Heartbeat(board, cluster.task, number, WorkerProgress(), clock.event())
            heartbeat.claim(visitor, _START_SECS)
            stack.enter_context(heartbeat.running())
        print("ready", flush=True)
        while sys.stdin.readline():
            times = []
            for _ in range(_NUM_READS):
                start_secs = time.perf_counter()
                visitor.snapshot()
                times.append(1000 * (time.perf_counter() - start_secs))
            print(*times, flush=True)


def main(argv: list[str]) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.board_load", description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", default="1,16,64,128", help="how many, separated by ','")
    parser.add_argument("--secs", type=float, default=20.0, help="how long each is measured")
    for name in ("ps_hosts", "worker_hosts", "first"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.first:
        be_workers(options.ps_hosts, options.worker_hosts.split(","), int(options.first))
        return
    print("| workers | ps 0: CPU ms a second | ps 0: CPU ms a heartbeat | workers: CPU ms a heartbeat "
          "| snapshot, median | 99 % |\n|---|---|---|---|---|---|", flush=True)
    for number in map(int, options.workers.split(",")):
        load, heartbeats = measure(number, options.secs), number / HEARTBEAT_SECS
        median, last = statistics.median(load.snapshot_ms), statistics.quantiles(load.snapshot_ms, n=100)[98]
        print(f"| {number} | {load.ps_ms:.0f} | {load.ps_ms / heartbeats:.2f} | {load.workers_ms / heartbeats:.2f} "
              f"| {median:.1f} ms | {last:.1f} ms |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
