"""Stands in for `srun` and `scontrol`, in tests: runs the tasks of a step on this machine, and notes what it was asked.

As the real one it gives each task its number and the step's shape, passes SIGTERM on, names each task that fails, and
ends with the largest code.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys


def srun(argv: list[str]) -> int:
    """Runs the command behind srun's own options, once for each task."""
    options = [word for word in argv if word.startswith("--")]
    command = argv[len(options[:next(i for i, word in enumerate(argv) if not word.startswith("--"))]):]
    tasks = int(os.environ["SLURM_NTASKS"])
    shape = {"SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_TASKS_PER_NODE": str(tasks),
             "SLURM_STEP_NUM_TASKS": str(tasks), "SLURMD_NODENAME": "localhost"}
    processes = [subprocess.Popen(command, env={**os.environ, **shape, "SLURM_PROCID": str(rank)})
                 for rank in range(tasks)]

    def pass_on(number, frame):
        for process in processes:
            process.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    codes = [process.wait() for process in processes]
    for rank, code in enumerate(codes):
        if code > 0:
            print(f"srun: error: localhost: task {rank}: Exited with exit code {code}", file=sys.stderr)
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    tool = pathlib.Path(sys.argv[0]).name
    with open(os.environ["SLURM_STUB_LOG"], "a", encoding="utf-8") as log:
        log.write(json.dumps([tool, *sys.argv[1:]]) + "\n")
    sys.exit(srun(sys.argv[1:]) if tool == "srun" else 0)
