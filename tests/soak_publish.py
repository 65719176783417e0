"""Kills workers, chief, ps, publisher and servers of a live model, and compares what is served with what was trained.

    python -m tests.soak_publish --kills=20 --seed=1

Two servers have a live model: one is a target of the publisher, the other one follows its folder. Each killed process
is started again after up to 3 s. At the end, each row of the last checkpoint must be that which both servers return for
its id, and that of a reader of the folder, bit for bit; ids without a row must have the same first value.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np

from ps_train.parts.live import pushes
from ps_train.parts.live.predict_calls import Arrays, predict_client
from ps_train.parts.tables import contents
from ps_train.storage import checkpoints
from tests.processes import REPO, ProcessGroup, TaskCluster, free_ports
from tests.push_reader import PushReader

PUBLISHER, TARGET, FOLLOWER = "publisher", "target", "follower"
_FLAGS = ["--model=tests.plugins.row_values", "--dataset=tests.plugins.row_values", "--train_steps=100000000",
          "--save_delta_secs=0.5", "--save_model_secs=4", "--log_steps=0", "--params=ttl_steps=200"]
_SCRIPT = str(REPO / "tests/scripts/live_serving.py")
_IDS = np.arange(-3, 320)  # of which some have no row
_WAIT_SECS = 120.0


class ServedTraining:
    """A training on 2 ps and 2 workers, a publisher and two servers; none of them ends by itself.

    Attributes:
      tasks: the names of those that can be killed.
    """

    def __init__(self, folder: pathlib.Path, group: ProcessGroup) -> None:
        """Starts the tasks; the servers when there is a model."""
        self.group, self._train_dir, self._publish_dir = group, folder / "train", folder / "served"
        cluster = TaskCluster(2, 2)
        self._ports = dict(zip((TARGET, FOLLOWER), free_ports(2)))
        self._target = f"--targets=localhost:{self._ports[TARGET]}/m"
        self._commands = {f"{job}-{index}": [*cluster.flags(job, index), *_FLAGS, f"--train_dir={self._train_dir}"]
                          for job, index in cluster.tasks()}
        self._commands[PUBLISHER] = self._publish("--publish_secs=0.5")
        self._commands |= {name: [str(self._publish_dir), str(port), *(["follow"] if name == FOLLOWER else [])]
                           for name, port in self._ports.items()}
        self._lives: collections.Counter[str] = collections.Counter()
        self.tasks = list(self._commands)
        for name in self.tasks:
            if name in self._ports:
                _wait_until((self._publish_dir / pushes.CURRENT).exists)
            self.start(name)

    def _publish(self, *flags: str) -> list[str]:
        return ["publish", str(self._train_dir), f"--publish_dir={self._publish_dir}", self._target, *flags]

    def _life(self, name: str) -> str:
        return f"{name}-life-{self._lives[name]}"

    def start(self, name: str) -> None:
        """Starts a task, the first time or again."""
        self._lives[name] += 1
        self.group.start(self._life(name), self._commands[name], script=_SCRIPT if name in self._ports else "")

    def kill(self, name: str) -> None:
        """Ends a task as `kill -9` does."""
        self.group.kill(self._life(name))

    def wait_for_pushes(self, count: int = 2) -> None:
        """Returns after so many more pushes; with two, the last one has what was trained since this call."""
        last = self._last_push()
        _wait_until(lambda: self._last_push() >= last + count)

    def _last_push(self) -> int:
        return pushes.read_current(str(self._publish_dir)).last

    def end_training(self) -> None:
        """Stops the tasks, publishes their last checkpoint, and waits until both servers have it."""
        names = [self._life(name) for name in self.tasks if name not in self._ports]
        for name in names:
            self.group.signal(name, 15)
        assert {self.group.exit_code(name) for name in names} == {143}, self.group.logs()
        self.group.start("last", self._publish("--once"))
        assert self.group.exit_code("last") == 0, self.group.logs()
        for name in self._ports:
            _wait_until(lambda name=name: self.call(name, "live_status", {"probe": np.int64(0)})["number"]
                        == self._last_push())

    def call(self, name: str, signature: str, inputs: Arrays) -> Arrays:
        """Returns what a server answers."""
        return predict_client(f"localhost:{self._ports[name]}/m")(signature, inputs)

    def predictions(self, name: str) -> Arrays:
        """Returns what a server answers for all ids."""
        return self.call(name, "serving_default", {"id": _IDS})

    def assert_served(self) -> int:
        """Compares what is served with the last checkpoint, row by row; returns the number of rows."""
        path = checkpoints.newest_sound(str(self._train_dir))
        trained = {key: row for ids, rows in contents.read_table(path, "rows")
                   for key, row in zip(ids.tolist(), rows.tolist())}
        assert trained == PushReader(self._publish_dir).follow().tables["rows"]
        served = [self.predictions(name) for name in self._ports]
        for found in served:
            rows = dict(zip(_IDS.tolist(), found["rows"].tolist()))
            assert {key: rows[key] for key in trained} == trained
            np.testing.assert_array_equal(found["rows"], served[0]["rows"])
            np.testing.assert_array_equal(found["offset"], served[0]["offset"])
        status = json.loads((self._train_dir / "publish.json").read_text())
        assert (status["number"], status["targets"][0]["problem"]) == (self._last_push(), ""), status
        return len(trained)


def _wait_until(is_so: Callable[[], bool]) -> None:
    end_secs = time.monotonic() + _WAIT_SECS
    while not is_so():
        assert time.monotonic() < end_secs, f"not in {_WAIT_SECS:g} s"
        time.sleep(0.1)


def run(folder: pathlib.Path, lost: Sequence[str], pauses: Sequence[float], say=print) -> None:
    """Kills these tasks, each after two more pushes, and starts each again after a pause; checks what is served."""
    with ProcessGroup(folder / "logs") as group:
        try:
            served = ServedTraining(folder, group)
            for number, (name, pause_secs) in enumerate(zip(lost, pauses), start=1):
                served.wait_for_pushes()
                served.kill(name)
                say(f"kill {number}: {name}, for {pause_secs:.1f} s")
                time.sleep(pause_secs)
                served.start(name)
            served.wait_for_pushes()
            served.end_training()
            say(f"{served.assert_served()} rows served equal those trained")
        except AssertionError:
            print(group.logs())
            raise


def main(argv: list[str]) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak_publish", description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    rng = random.Random(options.seed)
    tasks = ["worker-0", "worker-1", "ps-0", "ps-1", PUBLISHER, TARGET, FOLLOWER]
    lost = [*tasks, *rng.choices(tasks, k=options.kills)][:options.kills]
    rng.shuffle(lost)
    with tempfile.TemporaryDirectory() as folder:
        run(pathlib.Path(folder), lost, [rng.uniform(0.0, 3.0) for _ in lost],
            say=lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
