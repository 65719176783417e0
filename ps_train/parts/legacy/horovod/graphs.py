"""Places the operations of a Horovod script's graphs, which names no devices, and knows which graphs are trained.

    hvd.init()              from now on, each new graph has variables on the ps and the rest on this worker
    DistributedOptimizer    this graph is trained: it stays so
    a session of another    its variables come back to this worker: each process has its own
    horovod.keras           all graphs have their variables on this worker from the start

An initialisation that the script runs must not reset parameters that others use. So on all workers but the chief, and
on a chief that comes back, it does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

import tensorflow.compat.v1 as tf
from tensorflow.python.ops import variables  # `global_variables_initializer` calls the function of this module

from ps_train.cluster.spec import Cluster
from ps_train.errors import ConfigError
from ps_train.graph import transfer
from ps_train.graph.devices import is_on_ps
from ps_train.parts.legacy.classic.server import replica_device_setter

_VARIABLES = ("VarHandleOp", "VariableV2", "Variable")
_numbers = itertools.count()  # of graphs
_log = logging.getLogger(__name__)


class GraphState:
    """What is known of a graph.

    Attributes:
      is_trained: whether a DistributedOptimizer trains it.
      is_home: whether its variables are on this worker, or have come back to it.
      is_kept: whether its initialisations do nothing.
      exchanges: whether the script exchanges values in it by itself.
      hook: prepares a session for training, in `after_create_session`; None before `apply_gradients`.
      unset: the names of the parameters without a value; None before `apply_gradients`.
    """

    def __init__(self, graph: tf.Graph, cluster: Cluster, is_home: bool) -> None:
        """Places what is added to the graph from now on."""
        self.is_home = is_home
        self.is_trained = self.is_kept = self.exchanges = False
        self.hook: Any = None
        self.unset: tf.Tensor | None = None
        self._graph = weakref.ref(graph)
        self._worker = cluster.task.device
        self._starts: set[tf.Operation] = set()
        self._needs: dict[tf.Operation, bool] = {}
        self._reads: dict[tf.Operation, bool] = {}
        self._initializers: dict[tf.Operation, list[tf.Operation]] = {}  # -> what they run
        # They are never left: the graph of a script is placed to its end.
        self._scopes = contextlib.ExitStack()
        self._on_ps = replica_device_setter(
            cluster=tf.train.ClusterSpec(cluster.addresses), worker_device=self._worker)
        self._scopes.enter_context(graph.device(self._place))
        if is_home:
            # Sessions with a server share variables of one name, also those of different graphs. After
            # `K.clear_session()` a second model would begin with the weights of the first.
            self._scopes.enter_context(graph.container(f"ps_train_graph_{next(_numbers)}"))
        graph.device = self._device
        with graph.as_default():
            self._scopes.enter_context(tf.variable_creator_scope(self._keep_local_variables))

    def _place(self, op: tf.Operation) -> str:
        # A script may open its session before it builds the model.
        return self._worker if self.is_home else self._on_ps(op)

    @contextlib.contextmanager
    def _device(self, device: Any) -> Iterator[None]:
        """Is the graph's `device`, where None leaves the scopes of the script only: `Estimator.train` gives None."""
        graph = self._graph()
        with type(graph).device(graph, device), contextlib.ExitStack() as placed:
            if device is None:
                placed.enter_context(type(graph).device(graph, self._place))
            yield

    def _keep_local_variables(self, next_creator: Callable, **kwargs: Any) -> Any:
        """Makes a variable; a local one, such as a metric's, is on this worker."""
        if tf.GraphKeys.LOCAL_VARIABLES not in (kwargs.get("collections") or ()):
            return next_creator(**kwargs)
        with tf.device(self._worker):
            return next_creator(**kwargs)

    def train(self) -> None:
        """Notes that a DistributedOptimizer trains this graph.

        Raises:
          ConfigError: a session with this graph was opened before, so its variables are on this worker.
        """
        if self.is_home:
            raise ConfigError("horovod_session_too_early", "hvd.DistributedOptimizer: a session with this graph was "
                              "opened before; create the session after the call of minimize")
        self.is_trained = True

    def add_start(self, op: tf.Operation) -> None:
        """Notes an operation before which a session must be prepared for training."""
        self._starts.add(op)
        self._needs.clear()

    def needs_start(self, fetches: Any) -> bool:
        """Returns whether a session that is to run this must be prepared for training."""
        return self._is_any_upstream(self._starts, fetches, self._needs)

    def needs_values(self, fetches: Any) -> bool:
        """Returns whether running this reads, or sets, the parameters."""
        variables = self._graph().get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
        return self._is_any_upstream({variable.op for variable in variables}, fetches, self._reads)

    def _is_any_upstream(self, wanted: set[tf.Operation], fetches: Any, known: dict[tf.Operation, bool]) -> bool:
        graph = self._graph()
        for fetch in _flattened(fetches):
            try:
                element = graph.as_graph_element(fetch)
            except (TypeError, ValueError):  # the session says what is wrong with it
                continue
            op = element if isinstance(element, tf.Operation) else element.op
            if op not in known:
                known[op] = not wanted.isdisjoint(transfer.upstream([op]))
            if known[op]:
                return True
        return False

    def initializer(self, make: Callable[[], tf.Operation], var_list: Sequence[Any], name: str) -> tf.Operation:
        """Returns the operation that initialises variables, or one that does nothing if others use them."""
        local = {id(variable) for variable in tf.local_variables()}
        if all(id(variable) in local for variable in var_list):
            return make()
        op = make()
        self._initializers[op] = list(op.control_inputs)
        if self.is_kept:
            op._remove_all_control_inputs()  # noqa: SLF001 (it then is an operation that does nothing)
        return op

    def keep_parameters(self) -> None:
        """Lets all initialisations do nothing, also those that the script has made already."""
        if not self.is_kept:
            self.is_kept = True
            for op in self._initializers:
                op._remove_all_control_inputs()  # noqa: SLF001 (as above)

    def come_home(self) -> None:
        """Moves the variables of a graph that is not trained to this worker, where their initialisations count."""
        self.is_home = True
        if self.is_kept:
            self.is_kept = False
            for op, inputs in self._initializers.items():
                op._add_control_inputs(inputs)  # noqa: SLF001 (as above)
        for op in self._graph().get_operations():
            if is_on_ps(op.device):
                op._set_device(self._worker)  # noqa: SLF001 (no public name)


_ATTRIBUTE = "_ps_train_horovod"


def state_of(graph: tf.Graph) -> GraphState | None:
    """Returns the state of a graph, or None if it is not placed: the script runs alone."""
    return getattr(graph, _ATTRIBUTE, None)


def place_all(cluster: Cluster, own: bool) -> Callable[[], None]:
    """Places the default graph, and each that is made from now on; returns a function that ends that.

    Args:
      own: whether each rank has its own variables, on its worker.

    Raises:
      ConfigError: the default graph has variables already.
    """
    graph = tf.get_default_graph()
    if early := next((op.name for op in graph.get_operations() if op.type in _VARIABLES), None):
        raise ConfigError("horovod_init_too_late", f"hvd.init(): the graph has the variable {early!r} already; call "
                          "hvd.init() before the model is built")
    graph_class = type(graph)
    make = graph_class.__init__

    @functools.wraps(make)
    def init(self: tf.Graph, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        # Not the body of a function, which is placed as its graph is; nor the graphs of ps_train itself, which name the
        # devices that they need.
        maker = sys._getframe(1).f_globals.get("__name__", "")  # noqa: SLF001 (the only way to the caller)
        if type(self) is graph_class and not maker.startswith("ps_train."):
            setattr(self, _ATTRIBUTE, GraphState(self, cluster, own))

    graph_class.__init__ = init
    setattr(graph, _ATTRIBUTE, GraphState(graph, cluster, own))
    restore = _replace_functions()

    def end() -> None:
        graph_class.__init__ = make
        restore()

    return end


def _replace_functions() -> Callable[[], None]:
    """Lets what sets variables in TensorFlow spare those that others use; returns a function that ends that."""
    initializer, restore = variables.variables_initializer, tf.train.Saver.restore

    @functools.wraps(initializer)
    def sparing_initializer(var_list: Sequence[Any], name: str = "init") -> tf.Operation:
        state = state_of(tf.get_default_graph())
        if state is None or not var_list:
            return initializer(var_list, name)
        return state.initializer(lambda: initializer(var_list, name), var_list, name)

    @functools.wraps(restore)
    def sparing_restore(self: Any, sess: tf.Session, save_path: str) -> None:
        state = state_of(sess.graph)
        if state is not None and state.is_kept:
            _log.info("%s is not restored here: the parameters are those of rank 0", save_path)
        else:
            restore(self, sess, save_path)

    places = [(variables, "variables_initializer"), (tf, "variables_initializer"),
              (tf.initializers, "variables")]
    for place, name in places:
        setattr(place, name, sparing_initializer)
    tf.train.Saver.restore = sparing_restore

    def end() -> None:
        for place, name in places:
            setattr(place, name, initializer)
        tf.train.Saver.restore = restore

    return end


def _flattened(fetches: Any) -> Iterator[Any]:
    """Yields what is fetched. Unlike tf.nest, it takes a dictionary whose keys have no order, as hooks are."""
    if isinstance(fetches, Mapping):
        fetches = list(fetches.values())
    if isinstance(fetches, (list, tuple)):
        for fetch in fetches:
            yield from _flattened(fetch)
    elif fetches is not None:
        yield fetches
