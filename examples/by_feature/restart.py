"""A restart: worker 1 is killed as it begins, and is started again. Training ends as if nothing had happened."""

import os
import pathlib
import signal

import base

import ps_train


def input_fn(mode, params, shard):
    """The data of the base; the first process of worker 1 is killed here."""
    killed = pathlib.Path("runs/restart-was-killed")
    if shard[0] == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return base.input_fn(mode, params, shard)


if __name__ == "__main__":
    training = ps_train.Training("base", "restart", train_dir="runs/restart", num_ps=1, num_workers=2, train_steps=100,
                                 sync_replicas=True, max_restarts=1)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
