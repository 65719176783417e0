"""Trainings without what surrounds them in a task: no supervisor, heartbeat, claim or thread that saves.

    clusters.Worker    a worker as its task runs it; most of its CPU time goes into graphs and sessions
    BareTraining       its graph, the same step loop, and its Saver, in one session of the test's; half of that time

For tests about what a graph computes, and in which steps. Tests about losing, waiting and ending need a Worker.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import threading

from ps_train.coordination import sessions
from ps_train.coordination.heartbeat import WorkerProgress
from ps_train.storage import checkpoints
from ps_train.training import loop
from ps_train.training.reporting import Outcome
from tests import clusters
from tests.tensorflow_mode import tf

DEADLINE_SECS = 60
IN_ORDER = clusters.array_dataset(*clusters.linear_data(), shuffle=False)


class BareTraining:
    """The graph of one worker in a session on prepared parameters; worker 0 prepares them.

    Attributes:
      graph: its TrainGraph.
      session: on the worker's server.
      updates: in sync, what worker 0 runs with each step: the update that ends it, which in a task a thread runs.
    """

    def __init__(self, cluster, index=0, *, checkpoint=None, dataset=IN_ORDER, **options):
        """Builds the graph and begins the session.

        Args:
          checkpoint: the path of what worker 0 restores; None for new parameters.
          dataset: the linear data in an order that is always the same, by default.
          options: of `clusters.build_graph`.
        """
        self.graph = built = clusters.build_graph(cluster, index, dataset=dataset, **options)
        update = built.update
        service = update.make_chief_service() if index == 0 and options.get("gradients") else None
        self.updates = [service._operations.update_op] if service else []
        with built.graph.as_default():
            initialise = tf.global_variables_initializer()
            own = [tf.local_variables_initializer(), tf.tables_initializer(), update.init.every_worker]
        self.session = tf.Session(cluster.target("worker", index), graph=built.graph,
                                  config=sessions.options(cluster.view("worker", index).peers, is_elastic=False))
        if checkpoint:
            built.savers.saver.restore(self.session, checkpoint)
            built.rows.restore(self.session, checkpoint, checkpoint)
        elif index == 0:
            self.session.run(initialise)
            built.rows.reset(self.session)
        self.session.run([own, built.input.init_op], built.input.feed)
        self.session.run([update.slots.begin_op, built.steps.join_op, [update.init.new_run] * (index == 0)])

    def train(self, train_steps, write_summary=None, **schedule) -> Outcome:
        """Runs the step loop to a global step; `schedule` has fields of its LoopSettings."""
        settings = clusters.schedule(train_steps)._replace(**schedule)
        return loop.Loop(self.session, self.graph, settings, WorkerProgress(), stop=threading.Event(),
                         write_summary=write_summary, run_step=self._run_step).run()

    def _run_step(self, step, held_secs, fetches, options):
        return self.session.run([fetches, self.updates], options=options)[0]

    def save(self, folder) -> str:
        """Saves as a chief does, without the graph; returns the path of the checkpoint."""
        pathlib.Path(folder).mkdir(exist_ok=True)
        savers = self.graph.savers
        path = checkpoints.path_of(str(folder), self.session.run(self.graph.global_step))
        self.session.run(self.graph.update.slots.before_save_op)
        if savers.merging:
            savers.merging.save(self.session, path)
        else:
            savers.saver.save(self.session, path, write_meta_graph=False, write_state=False)
        checkpoints.record_and_prune(str(folder), path, 5)
        return path


def train(cluster, folder, train_steps, num_workers=1, *, continues=False, **options) -> list[Outcome]:
    """Trains with these workers, each up to a global step, and saves; returns their outcomes.

    In sync each step of a worker is one gradient of an update, and all take as many.

    Args:
      folder: of the checkpoint.
      continues: whether to begin with the checkpoint that is there.
      options: of `BareTraining`.
    """
    checkpoint = tf.train.latest_checkpoint(str(folder)) if continues else None
    workers = [BareTraining(cluster, index, checkpoint=None if index else checkpoint, **options)
               for index in range(num_workers)]
    outcomes = train_at_once(workers, train_steps)
    workers[0].save(folder)
    return outcomes


def train_at_once(workers, train_steps) -> list[Outcome]:
    """Trains with all of these workers, each in a thread; returns their outcomes."""
    with concurrent.futures.ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(worker.train, train_steps) for worker in workers]
        return [outcome.result(DEADLINE_SECS) for outcome in running]


def checkpoint_of(cluster, folder, train_steps, **options) -> dict:
    """Returns name -> value of the checkpoint after `train` with these arguments."""
    train(cluster, folder, train_steps, **options)
    return clusters.read_checkpoint(folder)
