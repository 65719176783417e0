"""Modules inside TensorFlow and packages that moved, or have other names today; nothing here imports TensorFlow."""

from __future__ import annotations


def _as_before(module: str, *names: str) -> dict[str, str]:
    """Returns name -> the same name in a module of today."""
    return {name: f"{module}:{name}" for name in names}


KERAS = "tf_keras.api._v1.keras"  # Keras 2, with the names that it has for a graph, such as backend.set_session
_PRIVATE = "ps_train.parts.legacy.names.private:"

_L2_NORMALIZE = {"l2_normalize_v2": "tensorflow.python.ops.nn_impl:l2_normalize"}
_RANDOM_CROP = _as_before("tensorflow.python.ops.random_crop_ops", "random_crop")
_VARIABLE_V1 = _as_before("tensorflow.python.ops.variable_v1", "VariableV1", "is_variable_initialized",
                          "default_variable_creator")

# Modules inside `tensorflow.python`, which libraries with copies of TensorFlow's code use: module -> the names that it
# had in 1.15 -> where they are today.
MOVED = {
    "tensorflow.python.ops.array_ops": _as_before(
        "tensorflow.python.ops.array_ops_stack", "stack", "unstack", "parallel_stack"),
    "tensorflow.python.ops.control_flow_ops": {
        "cond": "tensorflow.python.ops.cond:cond",
        "cond_v2": "tensorflow.python.ops.cond:cond_for_tf_v2",
        **_as_before("tensorflow.python.ops.while_loop", "while_loop", "while_loop_v2"),
        **_as_before("tensorflow.python.ops.control_flow_case", "case", "case_v2"),
        **_as_before("tensorflow.python.ops.control_flow_assert", "Assert"),
        **_as_before("tensorflow.python.ops.control_flow_util", "IsLoopEnter", "IsLoopExit", "IsLoopSwitch"),
        **_as_before("tensorflow.python.ops.control_flow_state", "MaybeCreateControlFlowState", "ZerosLike"),
        "ZerosLikeOutsideLoop": "tensorflow.python.ops.control_flow_state:ZerosLike",
        **_as_before("tensorflow.python.ops.cond", "cond_for_tf_v2"),
        **_as_before("tensorflow.python.ops.control_flow_switch_case", "switch_case"),
    },
    "tensorflow.python.ops.nn": {
        **_as_before("tensorflow.python.ops.rnn", "dynamic_rnn", "static_rnn", "raw_rnn", "bidirectional_dynamic_rnn",
                     "static_state_saving_rnn"), **_L2_NORMALIZE},
    "tensorflow.python.ops.nn_impl": {
        **_as_before("tensorflow.python.ops.nn_impl_distribute", "compute_average_loss", "scale_regularization_loss"),
        **_L2_NORMALIZE},
    "tensorflow.python.ops.random_ops": _RANDOM_CROP,
    "tensorflow.python.ops.math_ops": _as_before(
        "tensorflow.python.ops.special_math_ops", "bessel_i0e", "bessel_i1e"),
    "tensorflow.python.ops.standard_ops": {
        **_as_before("tensorflow.python.ops.array_ops_stack", "stack", "unstack"), **_RANDOM_CROP, **_VARIABLE_V1},
    "tensorflow.python.ops.parallel_for": _as_before(
        "tensorflow.python.ops.parallel_for.gradients", "jacobian", "batch_jacobian"),
    "tensorflow.python.ops.functional_ops": {
        "_symbolic_gradient": "tensorflow.python.ops.gen_functional_ops:symbolic_gradient"},
    "tensorflow.python.ops.variables": {
        **_VARIABLE_V1, **_as_before("tensorflow.python.ops.ref_variable", "RefVariable")},
    "tensorflow.python.ops.resource_variable_ops": {name: _PRIVATE + name for name in (
        "_to_proto_fn", "_from_proto_fn")},
    "tensorflow.python.ops.metrics_impl": {"_safe_div": _PRIVATE + "_safe_div"},
    "tensorflow.python.ops.variable_scope": {
        "variable": "tensorflow.python.ops.variable_v1:VariableV1", "_VARSCOPE_KEY": _PRIVATE + "_VARSCOPE_KEY",
        **_as_before("tensorflow.python.ops.variable_v1", "default_variable_creator"),
        **_as_before("tensorflow.python.ops.variables", "default_variable_creator_v2"),
        **_as_before("tensorflow.compat.v1", "enable_resource_variables", "disable_resource_variables",
                     "resource_variables_enabled")},
    "tensorflow.python.framework.ops": {
        **_as_before("tensorflow.python.framework.tensor", "Tensor", "TensorSpec"),
        **_as_before("tensorflow.python.framework.indexed_slices", "IndexedSlices", "IndexedSlicesValue",
                     "convert_to_tensor_or_indexed_slices", "convert_n_to_tensor_or_indexed_slices",
                     "internal_convert_to_tensor_or_indexed_slices", "internal_convert_n_to_tensor_or_indexed_slices"),
        **_as_before("tensorflow.python.framework.tensor_conversion", "convert_to_tensor_v2"),
        **_as_before("tensorflow.python.framework.stack", "default_session"),
        **_as_before("tensorflow.python.framework.tensor_conversion_registry", "register_tensor_conversion_function"),
        "convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
        "internal_convert_to_tensor": "tensorflow.compat.v1:convert_to_tensor",
    },
    "tensorflow.python.ops.rnn_cell_impl": {name: _PRIVATE + name for name in (
        "_linear", "_Linear", "_like_rnncell", "_state_size_with_prefix")},
    "tensorflow.python.ops.rnn_cell": {
        "linear": _PRIVATE + "_linear",
        **{name: _PRIVATE + name for name in ("_linear", "_Linear", "_state_size_with_prefix")}},
    "tensorflow.python.ops.gradients_impl": {
        "_AggregateIndexedSlicesGradients": "tensorflow.python.eager.backprop_util:AggregateIndexedSlicesGradients"},
    "tensorflow.python.saved_model.utils_impl": _as_before(
        "tensorflow.python.saved_model.path_helpers", "get_variables_dir", "get_variables_path",
        "get_or_create_variables_dir", "get_assets_dir", "get_or_create_assets_dir"),
    "tensorflow.python.distribute.distribute_lib": {
        "get_tower_context": "tensorflow.python.distribute.distribute_lib:get_replica_context",
        "get_cross_tower_context": "tensorflow.python.distribute.distribute_lib:get_cross_replica_context"},
    "tensorflow.python.framework.tensor_shape": {
        name: _PRIVATE + name for name in ("scalar", "vector", "matrix")},
    "tensorflow.python.eager.context": {"in_graph_mode": _PRIVATE + "in_graph_mode"},
    "tensorflow.python.pywrap_tensorflow": {
        **_as_before("tensorflow.python.training.py_checkpoint_reader", "NewCheckpointReader"),
        **_as_before("tensorflow.python.client._pywrap_events_writer", "EventsWriter"),
    },
    **{f"tensorflow.python.framework.{name}": _as_before(
        "tensorflow.compat.v1.graph_util", "convert_variables_to_constants", "extract_sub_graph",
        "remove_training_nodes", "must_run_on_cpu", "tensor_shape_from_node_def_name")
       for name in ("graph_util", "graph_util_impl")},
    "tensorflow.python.ops.data_flow_ops": _as_before(
        "tensorflow.python.ops.lookup_ops", "initialize_all_tables", "tables_initializer"),
    "tensorflow.python.platform.flags": {"FlagsError": "absl.flags:Error"},
    "tensorflow.core.protobuf.config_pb2": _as_before("tensorflow.core.protobuf.rpc_options_pb2", "RPCOptions"),
    **{f"tensorflow.python.feature_column.{name}": {
        "DenseFeatures": f"{KERAS}.layers:DenseFeatures",
        "SequenceFeatures": f"{KERAS}.experimental:SequenceFeatures",
        **_as_before("tensorflow.python.feature_column.feature_column_v2_types", "FeatureColumn")}
       for name in ("feature_column_lib", "feature_column_v2", "sequence_feature_column")},
    **{f"tensorflow.python.{name}": {"is_sequence": f"tensorflow.python.{name}:is_nested"}
       for name in ("util.nest", "data.util.nest")},
    "tensorflow.python.data.ops.dataset_ops": _as_before("tensorflow.python.data.ops.options", "Options"),
    "tensorflow.python.framework.func_graph": _as_before(
        "tensorflow.python.framework.auto_control_deps", "AutomaticControlDependencies"),
    "tensorflow.python.framework.tensor_util": _as_before("tensorflow.python.ops.shape_util", "maybe_set_static_shape"),
}

# Names that mean TensorFlow 2's class there today -> TF1's class.
REPLACED = {
    # Its DeviceSpec can be changed: merge_from, and attributes that can be set.
    "tensorflow.python.framework.device": {"DeviceSpec": "tensorflow.python.framework.device_spec:DeviceSpecV1"},
    # Scripts ask `isinstance(column, feature_column._NumericColumn)`, and columns are of other classes today. Not those
    # of tf.feature_column.shared_embedding_columns, which still makes _SharedEmbeddingColumn.
    "tensorflow.python.feature_column.feature_column": {
        f"_{name}": f"tensorflow.python.feature_column.feature_column_v2:{name}" for name in (
            "NumericColumn", "BucketizedColumn", "EmbeddingColumn", "HashedCategoricalColumn",
            "VocabularyFileCategoricalColumn", "VocabularyListCategoricalColumn", "IdentityCategoricalColumn",
            "WeightedCategoricalColumn", "CrossedColumn", "IndicatorColumn")},
}

def _public(module: str, names: str) -> dict[str, str]:
    """Returns name -> the name in a module of `tf`."""
    return {name: f"{module}.{name}" for name in names.split()}


_CONVOLUTIONS = ("Conv1D Conv2D Conv3D Conv2DTranspose Conv3DTranspose SeparableConv1D SeparableConv2D "
                 "conv1d conv2d conv3d conv2d_transpose conv3d_transpose separable_conv1d separable_conv2d ")
_POOLING = ("AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D "
            "average_pooling1d average_pooling2d average_pooling3d max_pooling1d max_pooling2d max_pooling3d ")
_CORE, _NORMALIZATION = "Dense Dropout Flatten dense dropout flatten ", "BatchNormalization batch_normalization "
_TRAINING = "Server Supervisor SessionManager SyncReplicasOptimizer MonitoredTrainingSession replica_device_setter "

# Modules inside `tensorflow.python` that scripts import -> name in it -> the name of `tf` that was the same object in
# TensorFlow 1, and is another one today (script_modules.py).
AS_PUBLIC = {
    "tensorflow.python.layers.base": _public("tf.layers", "Layer InputSpec") | {"_Layer": "tf.layers.Layer"},
    "tensorflow.python.layers.core": _public("tf.layers", _CORE),
    "tensorflow.python.layers.convolutional": _public("tf.layers", _CONVOLUTIONS),
    "tensorflow.python.layers.normalization": _public("tf.layers", _NORMALIZATION),
    "tensorflow.python.layers.pooling": _public("tf.layers", _POOLING),
    "tensorflow.python.layers.layers": _public(
        "tf.layers", "Layer InputSpec " + _CORE + _CONVOLUTIONS + _NORMALIZATION + _POOLING),
    **{f"tensorflow.python.ops.{name}": {
        "_RNNCell": "tf.nn.rnn_cell.RNNCell", "LayerRNNCell": "tf_keras.src.layers.rnn.legacy_cells:LayerRNNCell",
        **_public("tf.nn.rnn_cell", "RNNCell BasicRNNCell BasicLSTMCell LSTMCell GRUCell LSTMStateTuple MultiRNNCell "
                  "DropoutWrapper ResidualWrapper DeviceWrapper")} for name in ("rnn_cell", "rnn_cell_impl")},
    "tensorflow.python.ops.variables": {"Variable": "tf.Variable"},
    "tensorflow.python.client.session": _public("tf", "Session InteractiveSession"),
    "tensorflow.python.training.server_lib": _public("tf.train", "Server"),
    "tensorflow.python.training.session_manager": _public("tf.train", "SessionManager"),
    "tensorflow.python.training.device_setter": _public("tf.train", "replica_device_setter"),
    "tensorflow.python.training.training": _public("tf.train", _TRAINING),
}

# TensorFlow's own copy of an older Keras -> Keras 2 (keras_copies.py).
COPIES = {f"tensorflow.python.keras.{name}": f"{KERAS}.{name}" for name in (
    "activations", "applications", "backend", "callbacks", "constraints", "datasets", "initializers", "layers",
    "losses", "metrics", "models", "optimizers", "preprocessing", "regularizers", "utils")}
# Where Keras was in 1.1 to 1.8.
OLD_KERAS = ("tensorflow.contrib.keras.python.keras", "tensorflow.python.keras._impl.keras")
# Packages that became packages of their own, or have another name today: the first one that fits.
PACKAGES = {
    **{package: KERAS for package in (*OLD_KERAS, "tensorflow.python.keras._impl")},
    "keras": KERAS,  # Keras 3 does not build graphs
    "tensorflow.python.estimator": "tensorflow_estimator.python.estimator",
    "tensorflow.python.feature_column.dense_features": "tf_keras.src.feature_column.dense_features",
    # TensorFlow 2.16 and later look there for the layer under tf_slim's batch_norm; Keras 2 has it elsewhere.
    "tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers",
    "tensorflow.python.keras.preprocessing": "tf_keras.preprocessing",
    "tensorflow.python.training.training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.training.gen_training_ops": "tensorflow.python.ops.gen_training_ops",
    "tensorflow.python.ops.linalg_impl": "tensorflow.python.ops.linalg.linalg_impl",
    "tensorflow.python.ops.linalg_ns": "tensorflow.python.ops.linalg.linalg_impl",
    "tensorflow.python.ops.seq2seq": "ps_train.parts.legacy.names.seq2seq",
    # The last ones because `from package import module` asks for the module by today's name of the package.
    **{f"tensorflow.python.{package}.{name}": f"tensorflow.python.{today}"
       for package in ("training.tracking", "training.checkpointable", "trackable") for name, today in (
           ("graph_view", "checkpoint.graph_view"), ("util", "checkpoint.checkpoint"),
           ("tracking", "trackable.autotrackable"))},
    **{f"tensorflow.python.training.{name}": "tensorflow.python.trackable" for name in ("tracking", "checkpointable")},
    "tensorflow.python.training.distribute": "tensorflow.python.distribute.distribute_lib",
    **{f"tensorflow.python.{package}.distribution_strategy_context": "tensorflow.python.distribute.distribute_lib"
       for package in ("training", "distribute")},
    **{f"tensorflow.python.summary.{name}": f"tensorboard.backend.event_processing.{name}" for name in (
        "event_accumulator", "event_multiplexer", "event_file_inspector")},
    "xml.etree.cElementTree": "xml.etree.ElementTree",  # until Python 3.8
    # SciPy until 1.2 or 1.7, and scikit-learn until 0.23
    "scipy.sparse.linalg.eigen.arpack": "scipy.sparse.linalg", "scipy.sparse.linalg.eigen": "scipy.sparse.linalg",
    "scipy.misc.pilutil": "ps_train.parts.legacy.names.images", "scipy.misc": "ps_train.parts.legacy.names.images",
    "sklearn.cross_validation": "sklearn.model_selection", "sklearn.grid_search": "sklearn.model_selection",
    "sklearn.learning_curve": "sklearn.model_selection", "sklearn.externals.joblib": "joblib",
    "sklearn.externals.six": "six", "sklearn.datasets.samples_generator": "sklearn.datasets",
    "sklearn.metrics.classification": "sklearn.metrics",
    "sklearn.utils.linear_assignment_": "ps_train.parts.legacy.names.linear_assignment",
}
