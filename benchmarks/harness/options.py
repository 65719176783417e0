"""The flags that the peers share."""

from __future__ import annotations

import argparse
import sys

from benchmarks.harness.recording import Limits, Recorder

CANNOT_RUN = 2  # the exit code that says: not here; the same as ps_train's for a flag that it does not know


def parser(description: str) -> argparse.ArgumentParser:
    """Returns a parser of what every peer is told: the work, and where and how long to record."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--data_dir", default="", help="folder of MNIST, or mnist.npz; by default drawn digits")
    found.add_argument("--learning_rate", type=float, default=0.003)
    found.add_argument("--batch_size", type=int, default=100, help="examples in a mini-batch of one worker")
    found.add_argument("--seed", type=int, default=None)
    found.add_argument("--recording", default="", help="folder of the recording")
    found.add_argument("--batches", type=int, default=4000, help="of all workers: the run lasts at least so long")
    found.add_argument("--min_secs", type=float, default=6.0, help="and so long")
    found.add_argument("--max_secs", type=float, default=60.0, help="but never longer")
    return found


def recorder(arguments: argparse.Namespace) -> Recorder:
    """Returns the Recorder that the flags ask for."""
    limits = Limits(arguments.batches, arguments.min_secs, arguments.max_secs)
    return Recorder(arguments.recording, limits)


def leave(reason: object) -> None:
    """Ends this process with the word that this peer cannot run here."""
    print(f"skipped: {reason}", file=sys.stderr, flush=True)
    sys.exit(CANNOT_RUN)
