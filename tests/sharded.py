"""A cluster of real processes that trains on ranges handed out by ps 0, and two ledgers of what was trained on."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import re
import time

from tests.processes import DEADLINE_SECS, REPO, TaskCluster

NUM_LINES, NUM_EPOCHS = 1000, 3
_FILES = (("a", 0, 700), ("b", 700, NUM_LINES))
HOLD_BATCH = 25  # of each worker; those of both are a quarter of all
_NUMBERS = re.compile(r"reassigning .*?number ([\d, ]+)")


class Sharded:
    """A cluster of some ps and 2 workers that trains on files of numbered lines until all epochs are done."""

    def __init__(self, folder: pathlib.Path, group, flags=(), beat_timeout_secs=3, batch_secs=0.05, held=(),
                 num_ps=1, params="", has_own_folders=False, url="", data_flags=(f"--num_epochs={NUM_EPOCHS}",),
                 files=_FILES, files_at=""):
        """Starts it; the workers with an index in `held` take HOLD_BATCH batches, then wait until `release`.

        Args:
          params: further parameters of the plug-in `ledger`, each with a comma in front.
          has_own_folders: whether no task can reach the --train_dir of another one.
          url: the --train_dir, if it is in a store.
          data_flags: how often the data is trained on.
          files: the name of each, its first line and the one behind its last.
          files_at: finds them, if not by their path on this machine.
        """
        self.folder, self.group, self.has_own_folders = folder, group, has_own_folders
        self.train_dir = folder / "worker-0" / "train" if has_own_folders else folder / "train"
        self.url = url
        for index in held:
            (folder / f"hold.{index}").touch()
        for name, first, last in files:
            (folder / f"{name}.txt").write_text("".join(f"{number}\n" for number in range(first, last)))
        (folder / "ledger").mkdir()
        self.cluster = TaskCluster(num_ps, 2)
        plugin = "tests.plugins.ledger"
        self.flags = [f"--model={plugin}", f"--dataset={plugin}", "--batch_size=16", "--optimizer=sgd",
                      "--learning_rate=1", f"--train_dir={url or ('train' if has_own_folders else self.train_dir)}",
                      "--dynamic_sharding", *data_flags, f"--beat_timeout_secs={beat_timeout_secs}",
                      "--log_steps=10",
                      f"--params=files={files_at or f'{folder}/*.txt'},ledger={folder}/ledger,batch_secs={batch_secs},"
                      f"hold={folder}/hold,hold_batch={HOLD_BATCH}{params}", *flags]
        self.lives = collections.Counter()
        for job, index in self.cluster.tasks():
            self.start(f"{job}-{index}")

    def start(self, task):
        """Starts a task, for the first time or again."""
        job, _, index = task.partition("-")
        self.lives[task] += 1
        (self.folder / f"hold.{index}.begun").unlink(missing_ok=True)  # of its life before this one
        cwd = self.folder / task if self.has_own_folders else REPO
        cwd.mkdir(exist_ok=True)
        self.group.start(self.life(task), [*self.cluster.flags(job, int(index)), *self.flags], cwd=cwd)

    def life(self, task):
        """Returns the name of a task's process and log."""
        return f"{task}.{self.lives[task]}"

    def kill(self, task):
        """Ends a task as kill -9 does."""
        self.group.kill(self.life(task))

    def seen(self):
        """Returns how often each line was trained on, by what the processes have written after their steps."""
        return collections.Counter(int(line) for file in (self.folder / "ledger").iterdir()
                                   for line in file.read_text().split())

    def wait_until_held(self, *indices):
        """Returns when these workers have taken HOLD_BATCH batches, and wait with the next one in hand."""
        for index in indices:
            self._wait_for((self.folder / f"hold.{index}.reached").exists, f"worker {index} waits")

    def wait_until_begun(self, index):
        """Returns when a worker that was started by `start` has a batch in hand."""
        self._wait_for((self.folder / f"hold.{index}.begun").exists, f"worker {index} has a batch")

    def wait_until_saved(self, step):
        """Returns when the first chief has saved a checkpoint of this step or of a later one."""
        saved = re.compile(r"saved \S+model\.ckpt-(\d+)\n")
        self._wait_for(lambda: any(int(found) >= step for found in saved.findall(self.group.log("worker-0.1"))),
                       f"a checkpoint of step {step}")

    def wait_until_seen(self, num_lines):
        """Returns when so many lines were trained on, each counted once."""
        self._wait_for(lambda: len(self.seen()) >= num_lines, f"{num_lines} lines")

    def saves_under_way(self):
        """Returns the folders in which checkpoints or deltas are being written, or were when their chief died."""
        return [*self.train_dir.glob("*_temp")]

    def wait_until_saving(self):
        """Returns in the midst of a save."""
        self._wait_for(self.saves_under_way, "a save", pause_secs=0.005)

    def release(self, *indices):
        """Lets workers go on that wait."""
        for index in indices:
            (self.folder / f"hold.{index}").unlink()

    def _wait_for(self, condition, what, pause_secs=0.05):
        end_secs = time.monotonic() + DEADLINE_SECS
        while not condition():
            assert time.monotonic() < end_secs, f"{what}: not within {DEADLINE_SECS} s\n{self.group.logs()}"
            time.sleep(pause_secs)

    def reassigned(self):
        """Returns how often each line is in a range that a log says to be reassigned."""
        # It imports TensorFlow, which most tests of processes do not need in their own.
        from ps_train.parts.readers.file_ranges import plan_ranges  # noqa: PLC0415

        plan = plan_ranges(f"{self.folder}/*.txt", range_bytes=200)
        again = collections.Counter()
        for name in self.group.names:
            for numbers in _NUMBERS.findall(self.group.log(name)):
                for number in map(int, numbers.split(",")):
                    with open(plan[number].file, "rb") as file:
                        file.seek(plan[number].start)
                        again.update(map(int, file.read(plan[number].stop - plan[number].start).split()))
        return again

    def assert_ends_well(self):
        """Checks that the last life of each task ends with 0."""
        codes = {task: self.group.exit_code(self.life(task)) for task in self.lives}
        assert set(codes.values()) == {0}, f"{codes}\n{self.group.logs()}"
        assert f"input: {NUM_EPOCHS} of {NUM_EPOCHS} epochs done" in self.group.log(self.life("worker-0"))

    def assert_counts_fit(self, seen):
        """Checks that each line counts once an epoch, and besides at most as often as its range was reassigned."""
        again = self.reassigned()
        wrong = {line: (seen[line], again[line]) for line in range(NUM_LINES)
                 if not NUM_EPOCHS <= seen[line] <= NUM_EPOCHS + again[line]}
        assert not wrong, f"line: times seen, times reassigned: {wrong}\n{self.group.logs()}"

    def saved_counts(self):
        """Returns how often the parameters of the last checkpoint were trained on each line."""
        from ps_train import testing  # noqa: PLC0415 (as above)

        with self.saved_folder() as folder:
            return collections.Counter(dict(enumerate(testing.read_checkpoint(folder)["counts"].tolist())))

    @contextlib.contextmanager
    def saved_folder(self):
        """Yields a folder of this machine with the last checkpoint; of a store, what that has."""
        from ps_train.config import folders  # noqa: PLC0415 (as above)

        with folders.readable_words([f"--train_dir={self.url or self.train_dir}"], "checkpoint") as (word,):
            yield pathlib.Path(word.partition("=")[2])

    def saved_rows(self):
        """Returns the same of the rows of the table."""
        import ps_train  # noqa: PLC0415 (as above)
        from ps_train.storage import checkpoints  # noqa: PLC0415 (as above)

        with self.saved_folder() as folder:
            path = checkpoints.newest_sound(str(folder))
            return collections.Counter({int(one): float(value[0])
                                        for ids, values in ps_train.read_table(path, "counts")
                                        for one, value in zip(ids, values)})
