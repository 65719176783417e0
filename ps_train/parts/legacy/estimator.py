"""tf.estimator on TensorFlow 2.16 and later: PyPI's tensorflow-estimator 2.15.0, with ps_train's servers and sessions.

    install_estimator    substitutes for what the package imports and TensorFlow has removed; then tf.estimator,
                         tf.compat.v1.estimator, `import tensorflow.estimator`, ...
    offer_estimator      for plug-ins of `ps_train train`: a module at tf.estimator that does this on first use
    replace              train_and_evaluate   ps, chief, worker --> Server --> MonitoredTrainingSession
                                              evaluator         --> evaluate each new checkpoint until training is over
                         Estimator.train, called directly in a cluster by a script that was written for one process: the
                         original expects a server that nobody has started

TensorFlow 2.14 and 2.15 bring the package themselves; there the importable names change, and strategies.py trains
under `tf.distribute` strategies in place of TensorFlow's own module. The package is the last release of the original
code; ps_train replaces functions of it in memory, and its files stay. The substitute of a TPU module raises
NotImplementedError.

The original evaluator ends only once it has evaluated a checkpoint of `TrainSpec.max_steps`. It therefore waits for
ever if training ends earlier (early stopping, the end of the data, a chief that died), sleeps through the end of
training for up to `throttle_secs`, and misses the checkpoint that the chief saves after the last worker went past
`max_steps`. Here an `Observer` (observer.py) notices the end of training.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import sys
import time
import types
from typing import Any, Callable, NoReturn

import tensorflow as tf
import tensorflow.compat.v1 as tf1
from tensorflow.python.util import tf_export

from ps_train.cluster.spec import Task
from ps_train.errors import ChiefFailedError, ClusterLostError, ConfigError
from ps_train.parts.legacy import strategies
from ps_train.parts.legacy.classic import script_cluster
from ps_train.runtime import threads

_PACKAGE = "tensorflow_estimator.python.estimator"
_HOLDERS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")
_COORDINATOR = "tensorflow.python.distribute.estimator_training"
_TPU_MODULES = ("session_support", "tpu_embedding", "tpu_embedding_gradient")
_POLL_SECS = 1.0
_LOOK_SECS = 5.0  # for an answer that is under way when an evaluation ends
_log = logging.getLogger(__name__)


class _OfferedEstimator(types.ModuleType):
    """Loads Estimator's API, and takes its place, on first use."""

    def __getattr__(self, name: str) -> Any:
        """Loads Estimator, and returns a name of it; raises ConfigError if a package that it needs is not installed."""
        if name.startswith("__"):
            raise AttributeError(name)
        install_estimator()
        return getattr(sys.modules[self.__name__], name)


def offer_estimator() -> None:
    """Puts a module that loads itself on first use at `tf.estimator`, unless TensorFlow has its own."""
    for holder in _HOLDERS:
        module = importlib.import_module(holder)
        if not hasattr(module, "estimator"):
            vars(module)["estimator"] = sys.modules[f"{holder}.estimator"] = _OfferedEstimator(f"{holder}.estimator")


def install_estimator() -> types.ModuleType:
    """Puts Estimator's API of TensorFlow 2 at `tf.estimator`, and that of TensorFlow 1 at `tf.compat.v1.estimator`.

    Returns:
      The API of TensorFlow 1.

    Raises:
      ConfigError: tensorflow-estimator or tf_keras is not installed, or TensorFlow was imported with Keras 3.
    """
    for package in ("tensorflow_estimator", "tf_keras") if _lacks_estimator(tf) else ():
        if importlib.util.find_spec(package) is None:
            raise ConfigError("package_missing", f"tf.estimator: this TensorFlow has no Estimator, and {package} is "
                              "not installed; pip install 'ps_train[estimator]'")
    if getattr(tf.keras, "__version__", "2").startswith("3."):  # tf_keras gives no version there
        raise ConfigError("keras_2_needed", "tf.estimator needs Keras 2, and tf.keras is Keras 3 here; set "
                          "TF_USE_LEGACY_KERAS=1 before TensorFlow is imported, or leave that to `python -m ps_train`")
    _add_missing_modules()
    v1, v2 = (importlib.import_module(f"{_PACKAGE}.api._{version}.estimator") for version in ("v1", "v2"))
    apis = {"tensorflow": v2, "tensorflow.compat.v1": v1, "tensorflow.compat.v2": v2}
    for name, api in apis.items():
        for module in _modules(name):
            if _lacks_estimator(module):
                module.estimator = api
        sys.modules[f"{name}.estimator"] = api
    _let_features_fit_models()
    _share_input()
    from ps_train.parts.legacy.names import canned  # noqa: PLC0415 (it needs the Estimator)

    canned.take_keras_optimizers(v1, v2)
    return v1


def _lacks_estimator(module: types.ModuleType) -> bool:
    return isinstance(getattr(module, "estimator", None), (type(None), _OfferedEstimator))


def _modules(name: str) -> list[types.ModuleType]:
    """Returns the modules of that name: `tf.compat.v1` need not be the same object as the imported module."""
    module: types.ModuleType = tf
    for part in name.split(".")[1:]:
        module = getattr(module, part)
    return [module, importlib.import_module(name)]


def _add_missing_modules() -> None:
    """Puts a substitute into sys.modules for each module that this TensorFlow lacks."""
    _add_unless_importable(_COORDINATOR, types.ModuleType)
    strategies.offer_functions(sys.modules[_COORDINATOR])
    for name in _TPU_MODULES:
        _add_unless_importable(f"tensorflow.python.tpu.{name}", _AnyClass)
    if not hasattr(tf_export, "ESTIMATOR_API_NAME"):
        name = "tensorflow_estimator.python.estimator.estimator_export"
        sys.modules.setdefault(name, _export_decorator(name))


def _add_unless_importable(name: str, make: Callable[[str], types.ModuleType]) -> None:
    try:
        importlib.import_module(name)
    except ImportError:
        sys.modules[name] = make(name)


def _refusing(feature: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"Estimator with {feature}, which is for TPUs, needs TensorFlow 2.15 or older; train "
                                  "on CPUs or GPUs")

    return refuse


class _AnyClass(types.ModuleType):
    """A module that has every class; none of them can be created."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        substitute = type(name, (), {"__init__": _refusing(f"{self.__name__}.{name}")})
        setattr(self, name, substitute)
        return substitute


def _export_decorator(name: str) -> types.ModuleType:
    """Returns the module of the decorator that notes public names for TensorFlow's API generator."""
    module = types.ModuleType(name)

    class estimator_export:  # noqa: N801 (its name in the package)
        def __init__(self, *names: str, v1: Any = None) -> None:
            pass

        def __call__(self, exported: Any) -> Any:
            return exported

        def export_constant(self, module_name: str, constant: str) -> None:
            pass

    module.estimator_export = estimator_export
    return module


def replace(
    server_class: Any = None, monitored_training_session: Any = None,
    find_end: Callable[[Any], Callable[[bool], bool] | None] | None = None,
    find_server: Callable[[], Any] | None = None,
) -> None:
    """Replaces what `tf.estimator.train_and_evaluate` uses in its tasks; None leaves the original.

    Args:
      server_class: replaces `tf.train.Server`; its `join` ends the process of a ps after training.
      monitored_training_session: replaces `tf.train.MonitoredTrainingSession`, with the same arguments.
      find_end: called with the RunConfig when an evaluator starts; returns a function that returns whether training is
        over, after which no checkpoint comes, or None if that cannot be known: then the original decides. The evaluator
        calls the function before each look at the folder, and about once a second while it waits, and says whether it
        has evaluated a checkpoint of `max_steps`. It raises ClusterLostError if the cluster never answered, and
        ChiefFailedError if the chief's script has failed.
      find_server: returns the server of this process, or None. Then `Estimator.train` starts one in a cluster; else all
        trainings use it.

    Raises:
      ConfigError: the Estimator is not installed, see `install_estimator`.
    """
    install_estimator()
    # Not the public modules: only they hold the names that the package calls.
    from tensorflow_estimator.python.estimator import estimator, training  # noqa: PLC0415 (after `install_estimator`)

    if server_class is not None:
        make_server = _server_of_all_trainings(server_class, find_server) if find_server else server_class
        training.server_lib = _Overlay(training.server_lib, Server=make_server)
        strategies.serve_by(server_class)
    if monitored_training_session is not None:
        estimator.training = _Overlay(estimator.training, MonitoredTrainingSession=monitored_training_session)
    if find_end is not None:
        _replace_evaluator(training, find_end)
    if find_server is not None:
        estimator.Estimator.train = _starting_server(estimator.Estimator.train, server_class, find_server)


def _server_of_all_trainings(server_class: Any, find_server: Callable[[], Any]) -> Callable[..., Any]:
    """Returns how `train_and_evaluate` makes a server: if a script trains several times, the first one has the port."""
    def make(cluster: Any, job_name: str, task_index: int, **options: Any) -> Any:
        server = find_server()
        spec = tf1.train.ClusterSpec(cluster)
        task = Task(job_name, task_index, script_cluster.real_target(spec.task_address(job_name, task_index)))
        ps = [*map(script_cluster.real_target, spec.job_tasks("ps") if "ps" in spec.jobs else [])]
        is_own = server is not None and server.cluster.task == task and [one.address for one in server.cluster.ps] == ps
        return server if is_own else server_class(cluster, job_name, task_index, **options)

    return make


def _replace_evaluator(training: types.ModuleType, find_end: Callable[[Any], Callable[[bool], bool] | None]) -> None:
    original = training._TrainingExecutor.run_evaluator  # noqa: SLF001 (train_and_evaluate calls it)

    def run_evaluator(executor: Any) -> None:
        should_end = find_end(executor.estimator.config)
        if should_end is None:
            original(executor)
        else:
            _Evaluation(training, executor, should_end).run()

    training._TrainingExecutor.run_evaluator = run_evaluator  # noqa: SLF001


def _share_input() -> None:
    from tensorflow_estimator.python.estimator import estimator  # noqa: PLC0415 (the package is there now)

    from ps_train.parts.legacy.names import run_config  # noqa: PLC0415 (it needs the Estimator)

    run_config.share_input(estimator.Estimator)


def _let_features_fit_models() -> None:
    """Lets a Keras model of floats take features that are whole numbers, such as the pixels of an image.

    Until 1.13 `model_to_estimator` made floats of all numbers. Those of a model with an embedding may be ids, of which
    a float has only 24 bits.
    """
    from tensorflow_estimator.python.estimator import keras_lib  # noqa: PLC0415 (the package is there now)

    original = keras_lib._convert_estimator_io_to_keras  # noqa: SLF001 (no public name)
    if hasattr(original, "__wrapped__"):  # done before
        return

    @functools.wraps(original)
    def convert(keras_model: Any, *args: Any, **kwargs: Any) -> tuple:
        features, *others = original(keras_model, *args, **kwargs)
        inputs, has_ids = keras_model.inputs, any("Embedding" in type(layer).__name__ for layer in keras_model.layers)
        if isinstance(features, dict) and isinstance(inputs, dict):
            features = {name: _cast_like(feature, inputs.get(name), has_ids) for name, feature in features.items()}
        elif isinstance(features, list) and isinstance(inputs, list) and len(features) == len(inputs):
            features = [_cast_like(feature, wanted, has_ids) for feature, wanted in zip(features, inputs)]
        return (features, *others)
    keras_lib._convert_estimator_io_to_keras = convert  # noqa: SLF001


def _cast_like(feature: Any, wanted: Any, has_ids: bool) -> Any:
    """Returns a feature of whole numbers, of small ones where there may be ids, as floats if the model's input is."""
    is_number = feature.dtype.is_integer and (feature.dtype.size < 4 or not has_ids)
    is_changed = is_number and wanted is not None and wanted.dtype.is_floating
    return tf1.cast(feature, wanted.dtype) if is_changed else feature


def _starting_server(train: Callable, server_class: Any, find_server: Callable[[], Any]) -> Callable:
    """Returns an `Estimator.train` that starts the server of its task, if the cluster has a ps and nobody has."""
    @functools.wraps(train)
    def train_with_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = self.config
        jobs = set(config.cluster_spec.jobs) if config.cluster_spec else set()
        is_coordinated = strategies.should_run_distribute_coordinator(config)
        if is_coordinated:
            strategies.wait_on_ps(config)
        if "ps" in jobs and config.task_type in jobs and not (is_coordinated or find_server()):
            server = server_class(config.cluster_spec, job_name=config.task_type, task_index=config.task_id,
                                  config=config.session_config)
            if config.task_type == "ps":
                server.join()
        return train(self, *args, **kwargs)

    return train_with_server


class _Overlay(types.ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: types.ModuleType, **names: Any) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class _Evaluation:
    """The evaluator's task: evaluates each new checkpoint until training is over, and always the last one."""

    def __init__(self, training: types.ModuleType, executor: Any, should_end: Callable[[bool], bool]) -> None:
        # The names with an underscore are those of the package, whose last release has them.
        self._spec = executor._eval_spec  # noqa: SLF001
        self._listener = executor._continuous_eval_listener  # noqa: SLF001
        self._estimator = executor.estimator
        self._evaluated = training._EvalStatus.EVALUATED  # noqa: SLF001
        self._evaluator = executor._Evaluator(  # noqa: SLF001
            self._estimator, self._spec, executor._train_spec.max_steps)  # noqa: SLF001
        self._should_end = should_end
        self._is_over = False
        self._failure: ChiefFailedError | None = None
        self._last_result: Any = None

    def run(self) -> None:
        """Evaluates until training is over, or until the executor's listener ends the evaluation.

        Raises:
          ClusterLostError: the cluster never answered, and the folder has no checkpoint.
          ChiefFailedError: the chief's script has failed; no final export is made.
        """
        self._wait(self._spec.start_delay_secs)
        is_over = False
        while not is_over:
            is_over = self._is_training_over()  # before the look at the folder, not to miss the last checkpoint
            start_secs = time.monotonic()
            if not self._listener.before_eval():
                return
            result = self._evaluate()
            if not self._listener.after_eval(result):
                return
            if not is_over:
                self._wait(self._spec.throttle_secs - (time.monotonic() - start_secs))
        self._finish()

    def _is_training_over(self) -> bool:
        """Returns whether training is over: a cluster that never answers has ended if it left a checkpoint."""
        if self._failure is not None:
            raise self._failure
        if not self._is_over:
            try:
                self._is_over = self._should_end(self._evaluator.is_final_export_triggered)
            except ChiefFailedError as error:  # the training is not complete, and may be run again
                self._failure = error
                raise
            except ClusterLostError as error:
                if self._estimator.latest_checkpoint() is None:
                    raise
                _log.warning("%s; the folder has a checkpoint, so training counts as over", error)
                self._is_over = True
        return self._is_over

    def _evaluate(self) -> Any:
        """Returns the result for the newest checkpoint; one without metrics if it was evaluated before or removed."""
        path = self._estimator.latest_checkpoint()
        try:
            with threads.repeating(self._look, period_secs=_POLL_SECS, name="end of training", join_secs=_LOOK_SECS):
                result, _ = self._evaluator.evaluate_and_export()
        except (tf1.errors.OpError, ValueError):
            if path is None or tf1.train.checkpoint_exists(path):
                raise
            _log.info("%s was removed before its evaluation: newer ones exist", path)
            return None
        if result.status == self._evaluated:
            self._last_result = result
        return result

    def _look(self) -> None:
        """Notes during an evaluation that training is over: the cluster ends a few seconds after that."""
        with contextlib.suppress(ClusterLostError):  # it is raised after the evaluation
            self._is_training_over()

    def _finish(self) -> None:
        """Makes the final export if the last checkpoint is of another step than `max_steps`."""
        if self._last_result is None:
            _log.warning("training is over, and %s has no checkpoint to evaluate", self._estimator.model_dir)
        if self._last_result is None or self._evaluator.is_final_export_triggered:
            return
        _log.info("training has ended before max_steps; exporting %s", self._last_result.checkpoint_path)
        # The other exporters have exported this checkpoint already.
        from tensorflow_estimator.python.estimator import exporter  # noqa: PLC0415 (after `install_estimator`)

        final = [item for item in self._spec.exporters if isinstance(item, exporter.FinalExporter)]
        self._evaluator._eval_spec = self._spec._replace(exporters=final)  # noqa: SLF001
        self._evaluator._export_eval_result(self._last_result, is_the_final_export=True)  # noqa: SLF001

    def _wait(self, secs: float) -> None:
        end_secs = time.monotonic() + secs
        while (remaining_secs := end_secs - time.monotonic()) > 0 and not self._is_training_over():
            time.sleep(min(remaining_secs, _POLL_SECS))
