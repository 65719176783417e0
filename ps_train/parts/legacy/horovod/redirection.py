"""Where the sessions of a Horovod script go, which name no server, and what they run before their first step.

    graph                     session                                 before its first step
    trained by an optimizer   with the cluster                        the chief: announce the parameters, start the
                                                                      updates; the others: wait for it
    empty as yet              the same: the script builds it later    the same; if the script exchanges values by itself
                                                                      in it, each rank takes its variables home
    any other, or of Keras    with this worker's own server           nothing

A script may read the parameters before that, as it would have initialised its own: all but the chief wait for values.
"""

from __future__ import annotations

import functools
import logging
import threading
import weakref
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.client.session import BaseSession  # no public name

from ps_train.parts.legacy.classic.membership import Membership
from ps_train.parts.legacy.classic.sessions import Route
from ps_train.parts.legacy.classic.trainings import ScriptTraining, variables_of
from ps_train.parts.legacy.horovod import graphs
from ps_train.runtime import waits

_log = logging.getLogger(__name__)


class HorovodSessions:
    """The `Redirection` of a Horovod script.

    Attributes:
      is_chief: whether this is rank 0.
      device: the task of this rank.
    """

    def __init__(self, member: Membership) -> None:
        """Takes the membership of this worker."""
        self._member = member
        self.is_chief, self.device = member.cluster.is_chief, member.cluster.task.device
        self._lock = threading.Lock()
        self._begun: weakref.WeakSet = weakref.WeakSet()
        self._has_values: weakref.WeakSet = weakref.WeakSet()  # sessions whose parameters rank 0 has initialised
        self._announce: Callable[[], None] | None = None  # the chief's, for a `tf.Session`

    def shares(self, graph: tf.Graph) -> bool:
        """Returns whether the parameters of a graph are shared; if not, each rank has its own."""
        state = graphs.state_of(graph)
        return state is None or not (state.is_home or graph.get_operations()) or state.is_trained

    def route(self, graph: tf.Graph) -> Route:
        """Returns where a session without a target goes."""
        if self.shares(graph):
            return Route(self._member.target, self._member, waits=not self.is_chief)
        graphs.state_of(graph).come_home()
        return Route(self._member.target, filters=[self._member.cluster.task.device])

    def opened(self, session: tf.Session) -> None:
        """Prepares for the script's own initialisation: only the chief's counts, and only if the training is new."""
        graph = session.graph
        state = graphs.state_of(graph)
        if not self.is_chief:
            state.keep_parameters()
            return
        training = ScriptTraining(graph, None, variables_of(graph))
        if self._member.find_parameters(training):
            _log.info("the parameters are in use already, so they are not initialised")
            state.keep_parameters()
        else:
            self._announce = functools.partial(self._member.announce_prepared, training)

    def before_run(self, session: tf.Session, fetches: Any) -> None:
        """Prepares the session if the fetches are the first ones that train."""
        state = graphs.state_of(session.graph)
        if state is not None and state.exchanges and not state.is_trained and not state.is_home:
            state.come_home()
        if state is None or state.hook is None or session in self._begun:
            return
        if not state.needs_start(fetches):
            if not self.is_chief and session not in self._has_values and state.needs_values(fetches):
                self._await_values(session, state.unset)
                self._has_values.add(session)
            return
        with self._lock:
            if session not in self._begun:
                self._begin(session, state)
                self._begun.add(session)

    def _await_values(self, session: tf.Session, unset: tf.Tensor) -> None:
        missing: list[str] = []

        def are_set() -> bool:
            missing[:] = map(tf.compat.as_str, BaseSession.run(session, unset))
            return not missing

        waits.until(are_set, self._member.timeouts.start_secs,
                    lambda: f"rank 0 to initialise {(missing or ['the parameters'])[0]}", self._member.stop)

    def _begin(self, session: tf.Session, state: graphs.GraphState) -> None:
        announce, self._announce = self._announce, None
        if announce is not None:
            announce()
        if not self.is_chief:
            self._member.wait_until_prepared()
        state.hook.after_create_session(session, None)
