"""tf.contrib.layers, slim, framework, losses and metrics, which live on in TF-Slim."""

from __future__ import annotations

_COLUMNS = "ps_train.parts.legacy.names.contrib.feature_columns:"
_SMALL = "ps_train.parts.legacy.names.contrib.functions:"
_NETS = ("alexnet", "inception", "inception_v1", "inception_v2", "inception_v3", "overfeat", "resnet_utils",
         "resnet_v1", "resnet_v2", "vgg")
_DATA = ("data_decoder", "data_provider", "dataset", "dataset_data_provider", "parallel_reader", "prefetch_queue",
         "tfexample_decoder")
_HOOKS = ("StopAfterNEvalsHook", "SummaryAtEndHook", "checkpoints_iterator", "evaluate_once", "evaluate_repeatedly",
          "get_or_create_eval_step", "wait_for_new_checkpoint")

NAMES = {
    # layers: feature columns
    "tf.contrib.layers.real_valued_column": _COLUMNS + "real_valued_column",
    "tf.contrib.layers.bucketized_column": _COLUMNS + "bucketized_column",
    "tf.contrib.layers.sparse_column_with_hash_bucket": _COLUMNS + "sparse_column_with_hash_bucket",
    "tf.contrib.layers.sparse_column_with_integerized_feature": _COLUMNS + "sparse_column_with_integerized_feature",
    "tf.contrib.layers.sparse_column_with_keys": _COLUMNS + "sparse_column_with_keys",
    "tf.contrib.layers.sparse_column_with_vocabulary_file": _COLUMNS + "sparse_column_with_vocabulary_file",
    "tf.contrib.layers.weighted_sparse_column": _COLUMNS + "weighted_sparse_column",
    "tf.contrib.layers.crossed_column": _COLUMNS + "crossed_column",
    "tf.contrib.layers.embedding_column": _COLUMNS + "embedding_column",
    "tf.contrib.layers.shared_embedding_columns": _COLUMNS + "contrib_shared_embedding_columns",
    "tf.contrib.layers.one_hot_column": "tf.feature_column.indicator_column",
    "tf.contrib.layers.create_feature_spec_for_parsing": "tf.feature_column.make_parse_example_spec",
    "tf.contrib.layers.input_from_feature_columns": _COLUMNS + "input_from_feature_columns",
    "tf.contrib.layers.weighted_sum_from_feature_columns": _COLUMNS + "weighted_sum_from_feature_columns",
    "tf.contrib.layers.SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY": _COLUMNS + "SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY",
    # layers: the rest
    "tf.contrib.layers.embed_sequence": _SMALL + "embed_sequence",
    "tf.contrib.layers.safe_embedding_lookup_sparse": "tf.nn.safe_embedding_lookup_sparse",
    # framework
    "tf.contrib.framework.nest": "tensorflow.python.util.nest",
    "tf.contrib.framework.get_or_create_global_step": "tf.train.get_or_create_global_step",
    "tf.contrib.framework.get_global_step": "tf.train.get_global_step",
    "tf.contrib.framework.create_global_step": "tf.train.create_global_step",
    "tf.contrib.framework.assert_global_step": "tf.train.assert_global_step",
    "tf.contrib.framework.load_checkpoint": "tf.train.load_checkpoint",
    "tf.contrib.framework.load_variable": "tf.train.load_variable",
    "tf.contrib.framework.list_variables": "tf.train.list_variables",
    "tf.contrib.framework.init_from_checkpoint": "tf.train.init_from_checkpoint",
    "tf.contrib.framework.is_tensor": "tf.is_tensor",
    "tf.contrib.framework.is_numeric_tensor": "tf.debugging.is_numeric_tensor",
    "tf.contrib.framework.is_non_decreasing": "tf.is_non_decreasing",
    "tf.contrib.framework.is_strictly_increasing": "tf.is_strictly_increasing",
    "tf.contrib.framework.assert_scalar": "tf.assert_scalar",
    "tf.contrib.framework.assert_same_float_dtype": "tf.debugging.assert_same_float_dtype",
    "tf.contrib.framework.convert_to_tensor_or_sparse_tensor": "tf.convert_to_tensor_or_sparse_tensor",
    "tf.contrib.framework.remove_squeezable_dimensions":
        "tensorflow.python.ops.confusion_matrix:remove_squeezable_dimensions",
    "tf.contrib.framework.deprecated": "tensorflow.python.util.deprecation:deprecated",
    "tf.contrib.framework.deprecated_args": "tensorflow.python.util.deprecation:deprecated_args",
    "tf.contrib.framework.deprecated_arg_values": "tensorflow.python.util.deprecation:deprecated_arg_values",
    "tf.contrib.framework.prepend_name_scope": "tensorflow.python.framework.ops:prepend_name_scope",
    "tf.contrib.framework.strip_name_scope": "tensorflow.python.framework.ops:strip_name_scope",
    "tf.contrib.framework.smart_cond": "tensorflow.python.framework.smart_cond:smart_cond",
    "tf.contrib.framework.CriticalSection": "tf.CriticalSection",
    "tf.contrib.framework.TensorSpec": "tf.TensorSpec",
    "tf.contrib.framework.BoundedTensorSpec": "tensorflow.python.framework.tensor_spec:BoundedTensorSpec",
    "tf.contrib.framework.argsort": "tf.argsort",
    "tf.contrib.framework.sort": "tf.sort",
    # metrics
    "tf.contrib.metrics.confusion_matrix": "tf.confusion_matrix",
    "tf.contrib.metrics.set_difference": "tf.sets.set_difference",
    "tf.contrib.metrics.set_intersection": "tf.sets.set_intersection",
    "tf.contrib.metrics.set_size": "tf.sets.set_size",
    "tf.contrib.metrics.set_union": "tf.sets.set_union",
    # slim
    **{f"tf.contrib.slim.nets.{net}": f"tf_slim.nets.{net}" for net in _NETS},
    **{f"tf.contrib.slim.python.slim.data.{part}": f"tf_slim.data.{part}" for part in _DATA},
    # training: loops
    **{f"tf.contrib.training.{name}": f"tf_slim.training.training:{name}" for name in (
        "add_gradients_summaries", "clip_gradient_norms", "clip_gradient_norms_fn", "create_train_op",
        "multiply_gradients", "train")},
    **{f"tf.contrib.training.{name}": f"tf_slim.training.evaluation:{name}" for name in _HOOKS},
}

MODULES = {
    "tf.contrib.layers": ("tf_slim.layers", "tf_slim.layers.optimizers", "tf_slim.layers.summaries"),
    "tf.contrib.layers.python.layers": ("tf.contrib.layers",),
    "tf.contrib.layers.python.layers.feature_column": ("tf.contrib.layers",),
    "tf.contrib.layers.python.layers.feature_column_ops": ("tf.contrib.layers",),
    "tf.contrib.layers.python.ops.sparse_ops": ("tf_slim.layers.sparse_ops",),
    "tf.contrib.slim": ("tf_slim",),
    "tf.contrib.slim.losses": ("tf_slim.losses.loss_ops", "tf_slim.losses.metric_learning"),
    "tf.contrib.slim.metrics": ("tf.contrib.metrics",),
    "tf.contrib.slim.python.slim": ("tf.contrib.slim",),
    "tf.contrib.framework": ("tf_slim.ops.arg_scope", "tf_slim.ops.variables", "tf_slim.ops.framework_ops"),
    "tf.contrib.framework.python.framework": ("tf.contrib.framework",),
    "tf.contrib.framework.python.framework.tensor_util": ("tf.contrib.framework",),
    "tf.contrib.framework.python.framework.checkpoint_utils": ("tf.train",),
    "tf.contrib.framework.python.ops": ("tf.contrib.framework",),
    "tf.contrib.framework.python.ops.variables": ("tf.contrib.framework",),
    # Predictions come before labels here, in tf.losses and tf.metrics after them.
    "tf.contrib.losses": ("tf_slim.losses.loss_ops",),
    "tf.contrib.losses.metric_learning": ("tf_slim.losses.metric_learning",),
    "tf.contrib.losses.python.losses.loss_ops": ("tf_slim.losses.loss_ops",),
    "tf.contrib.metrics": ("tf_slim.metrics.metric_ops", "tf_slim.metrics.classification",
                           "tf_slim.metrics.histogram_ops"),
    "tf.contrib.metrics.python.ops.metric_ops": ("tf.contrib.metrics",),
    "tf.contrib.metrics.python.ops.confusion_matrix_ops": ("tf.contrib.metrics",),
    "tf.contrib.metrics.python.ops.set_ops": ("tf.contrib.metrics",),
}
