"""The variables of an evaluation on ps 0: the chief's plan, and the result of each share.

    plan      the worker of each share; written by the chief, a new one for each attempt
    results   each is written as a whole, so a worker may write it again
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from ps_train.cluster.spec import Cluster
from ps_train.coordination import variables
from ps_train.coordination.sessions import Connection

Sums = Mapping[str, np.ndarray]  # name of a local variable of a metric -> the sum that a share has added to it
_MAX_ROUND = 2**62


class Share(NamedTuple):
    """The worker of a share of the held-out data.

    Attributes:
      worker: the worker's number.
      claim: of the process that has the number; another process with the number does not know the plan.
    """

    worker: int
    claim: int


class Plan(NamedTuple):
    """One evaluation by several workers.

    Attributes:
      round: a number that no other plan has.
      shares: the worker of each share; share i is (i, len(shares)) of the data.
    """

    round: int
    shares: Sequence[Share]

    def share_of(self, claim: int) -> int | None:
        """Returns the share of the process with this claim, or None if it has none."""
        return next((index for index, share in enumerate(self.shares) if share.claim == claim), None)


def new_plan(shares: Sequence[Share]) -> Plan:
    """Returns a plan that no worker has seen."""
    return Plan(secrets.randbelow(_MAX_ROUND) + 1, list(shares))


class ShareResult(NamedTuple):
    """The result of a share.

    Attributes:
      global_step: at its end.
      num_examples: in the share.
      loss_sum: summed over its examples.
      sums: the sum that the share has added to each variable of the metrics.
    """

    global_step: int
    num_examples: int
    loss_sum: float
    sums: Sums

    def encode(self, round_number: int) -> bytes:
        """Returns it as bytes, with the round of the plan that it belongs to."""
        file = io.BytesIO()
        sums = {f"sum_{number}": value for number, value in enumerate(self.sums.values())}
        np.savez(file, numbers=np.array([round_number, self.global_step, self.num_examples]),
                 loss_sum=np.float64(self.loss_sum), names=np.array(list(self.sums), str), **sums)
        return file.getvalue()


def decode_result(encoded: bytes, round_number: int) -> ShareResult | None:
    """Returns the result that `ShareResult.encode` has encoded, or None if it belongs to another round."""
    with np.load(io.BytesIO(encoded), allow_pickle=False) as file:
        result_round, global_step, num_examples = map(int, file["numbers"])
        if result_round != round_number:
            return None
        sums = {str(name): file[f"sum_{number}"] for number, name in enumerate(file["names"])}
        return ShareResult(global_step, num_examples, float(file["loss_sum"]), sums)


class ResultExchange:
    """One task's view of the plan and the results. Every method raises BlackboardError if ps 0 does not answer."""

    def __init__(self, target: str, cluster: Cluster) -> None:
        """Builds the operations; nothing is sent yet.

        Args:
          target: address of this worker's server.
        """
        with tf.Graph().as_default() as graph, tf.device(cluster.ps[0].device):
            self._string, self._share = tf.placeholder(tf.string, []), tf.placeholder(tf.int64, [])
            self._shares = tf.placeholder(tf.int64, [None])
            self._read_plan = variables.read("evaluation_plan")
            with tf.control_dependencies([variables.clear("evaluation_results")]):
                self._write_plan = variables.write("evaluation_plan", self._string)
            self._write_result = variables.write_element("evaluation_results", self._share, self._string)
            self._read_results = tf.gather(variables.read("evaluation_results"), self._shares)
            graph.finalize()
        self._connection = Connection(graph, target, cluster.ps[:1], cluster.task, is_elastic=cluster.is_elastic)
        self._run = self._connection.run

    def open(self, plan: Plan) -> None:
        """Writes the plan, and clears all results."""
        self._run(self._write_plan, {self._string: json.dumps(plan)})

    def plan(self) -> Plan | None:
        """Returns the last plan that was opened, or None."""
        plan = self._run(self._read_plan)
        if not plan:
            return None
        number, shares = json.loads(plan)
        return Plan(number, [Share(*share) for share in shares])

    def deliver(self, plan: Plan, share: int, result: ShareResult) -> None:
        """Writes the result of a share."""
        self._run(self._write_result, {self._share: share, self._string: result.encode(plan.round)})

    def results(self, plan: Plan, shares: Iterable[int]) -> dict[int, ShareResult]:
        """Returns share -> result, of those shares that have a result of this plan."""
        shares = list(shares)
        decoded = {share: decode_result(encoded, plan.round)
                   for share, encoded in zip(shares, self._run(self._read_results, {self._shares: shares})) if encoded}
        return {share: result for share, result in decoded.items() if result is not None}

    def close(self) -> None:
        """Closes the session."""
        self._connection.close()
