"""The other modules of tf.contrib: name -> what it is today."""

from __future__ import annotations

_HERE = "ps_train.parts.legacy.names.contrib."
_LOOKUP = "tensorflow.python.ops.lookup_ops:"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2:"
_OLD = "ps_train.parts.legacy.names.arguments:"

NAMES = {
    # cluster_resolver, distribute
    "tf.contrib.distribute.MirroredStrategy": _HERE + "functions:mirrored_strategy",
    "tf.contrib.distribute.CollectiveAllReduceStrategy": _HERE + "functions:collective_all_reduce_strategy",
    "tf.contrib.distribute.ParameterServerStrategy": _HERE + "functions:parameter_server_strategy",
    "tf.contrib.distribute.DistributeConfig": "tensorflow.python.distribute.distribute_config:DistributeConfig",
    "tf.contrib.distribute.AllReduceCrossDeviceOps":
        "tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "tf.contrib.distribute.ReductionToOneDeviceCrossDeviceOps": "tf.distribute.ReductionToOneDevice",
    # data
    "tf.contrib.data.batch_and_drop_remainder": _HERE + "functions:batch_and_drop_remainder",
    "tf.contrib.data.padded_batch_and_drop_remainder": _HERE + "functions:padded_batch_and_drop_remainder",
    "tf.contrib.data.AUTOTUNE": "tf.data.experimental.AUTOTUNE",
    # deprecated
    "tf.contrib.deprecated.scalar_summary": _OLD + "scalar_summary",
    "tf.contrib.deprecated.histogram_summary": _OLD + "histogram_summary",
    "tf.contrib.deprecated.image_summary": _OLD + "image_summary",
    "tf.contrib.deprecated.audio_summary": _OLD + "audio_summary",
    "tf.contrib.deprecated.merge_summary": "tf.summary.merge",
    "tf.contrib.deprecated.merge_all_summaries": "tf.summary.merge_all",
    # eager
    "tf.contrib.eager.enable_eager_execution": "tf.enable_eager_execution",
    "tf.contrib.eager.in_eager_mode": "tf.executing_eagerly",
    "tf.contrib.eager.executing_eagerly": "tf.executing_eagerly",
    "tf.contrib.eager.list_devices": _HERE + "functions:list_devices",
    "tf.contrib.eager.num_gpus": "tensorflow.python.eager.context:num_gpus",
    "tf.contrib.eager.py_func": "tf.py_function",
    "tf.contrib.eager.defun": "tf.function",
    "tf.contrib.eager.Variable": "tf.Variable",
    "tf.contrib.eager.GradientTape": "tf.GradientTape",
    # lookup
    "tf.contrib.lookup.index_table_from_tensor": _HERE + "functions:index_table_from_tensor",
    "tf.contrib.lookup.index_table_from_file": _LOOKUP + "index_table_from_file",
    "tf.contrib.lookup.index_to_string_table_from_tensor": _HERE + "functions:index_to_string_table_from_tensor",
    "tf.contrib.lookup.index_to_string_table_from_file": _LOOKUP + "index_to_string_table_from_file",
    "tf.contrib.lookup.string_to_index_table_from_tensor": _HERE + "functions:index_table_from_tensor",
    "tf.contrib.lookup.string_to_index_table_from_file": _LOOKUP + "index_table_from_file",
    "tf.contrib.lookup.HashTable": "tf.lookup.StaticHashTable",
    "tf.contrib.lookup.MutableHashTable": "tf.lookup.experimental.MutableHashTable",
    "tf.contrib.lookup.MutableDenseHashTable": "tf.lookup.experimental.DenseHashTable",
    "tf.contrib.lookup.IdTableWithHashBuckets": _LOOKUP + "IdTableWithHashBuckets",
    "tf.contrib.lookup.KeyValueTensorInitializer": "tf.lookup.KeyValueTensorInitializer",
    "tf.contrib.lookup.TextFileInitializer": "tf.lookup.TextFileInitializer",
    "tf.contrib.lookup.TextFileIndex": "tf.lookup.TextFileIndex",
    "tf.contrib.lookup.TextFileIdTableInitializer": _LOOKUP + "TextFileIdTableInitializer",
    "tf.contrib.lookup.TextFileStringTableInitializer": _LOOKUP + "TextFileStringTableInitializer",
    "tf.contrib.lookup.FastHashSpec": _LOOKUP + "FastHashSpec",
    "tf.contrib.lookup.StrongHashSpec": _LOOKUP + "StrongHashSpec",
    # nn
    "tf.contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits":
        _HERE + "functions:flipped_softmax_cross_entropy",
    "tf.contrib.nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits":
        _HERE + "functions:flipped_sparse_softmax_cross_entropy",
    "tf.contrib.nn.deprecated_flipped_sigmoid_cross_entropy_with_logits":
        _HERE + "functions:flipped_sigmoid_cross_entropy",
    # opt
    "tf.contrib.opt.LazyAdamOptimizer": _HERE + "optimizers:LazyAdamOptimizer",
    "tf.contrib.opt.AdamWOptimizer": _HERE + "optimizers:AdamWOptimizer",
    "tf.contrib.opt.MomentumWOptimizer": _HERE + "optimizers:MomentumWOptimizer",
    "tf.contrib.opt.NadamOptimizer": _HERE + "optimizers:NadamOptimizer",
    # rnn, seq2seq
    "tf.contrib.rnn.LSTMBlockCell": _HERE + "functions:lstm_block_cell",
    "tf.contrib.rnn.transpose_batch_time": _HERE + "functions:transpose_batch_time",
    "tf.contrib.seq2seq.sequence_loss": _HERE + "functions:sequence_loss",
    # summary
    **{f"tf.contrib.summary.{name}": _SUMMARY + name for name in (
        "always_record_summaries", "never_record_summaries", "record_summaries_every_n_global_steps",
        "should_record_summaries", "summary_writer_initializer_op", "scalar", "histogram", "image", "audio", "generic",
        "import_event", "flush", "initialize", "eval_dir", "create_summary_file_writer", "SummaryWriter")},
    "tf.contrib.summary.create_file_writer": _SUMMARY + "create_file_writer",
    "tf.contrib.summary.all_summary_ops": _SUMMARY + "all_v2_summary_ops",
    "tf.contrib.summary.graph": _SUMMARY + "graph_v1",
    # tensorboard, tfprof
    "tf.contrib.tensorboard.plugins.projector": "tensorboard.plugins.projector",
    "tf.contrib.tfprof.model_analyzer.print_model_analysis": _HERE + "functions:print_model_analysis",
    "tf.contrib.tfprof.model_analyzer.FLOAT_OPS_OPTIONS": _HERE + "functions:FLOAT_OPS_OPTIONS",
    "tf.contrib.tfprof.model_analyzer.TRAINABLE_VARS_PARAMS_STAT_OPTIONS":
        _HERE + "functions:TRAINABLE_VARS_PARAMS_STAT_OPTIONS",
    # training
    "tf.contrib.training.HParams": _HERE + "hparams:HParams",
    "tf.contrib.training.parse_values": _HERE + "hparams:parse_values",
    "tf.contrib.training.GreedyLoadBalancingStrategy": _HERE + "load_balancing:GreedyLoadBalancingStrategy",
    "tf.contrib.training.RandomStrategy": _HERE + "load_balancing:RandomStrategy",
    "tf.contrib.training.byte_size_load_fn": _HERE + "load_balancing:byte_size_load_fn",
    # util
    "tf.contrib.util.make_tensor_proto": "tf.make_tensor_proto",
    "tf.contrib.util.make_ndarray": "tf.make_ndarray",
    "tf.contrib.util.constant_value": "tf.get_static_value",
    "tf.contrib.util.stripped_op_list_for_graph":
        "tensorflow.python.framework.meta_graph:stripped_op_list_for_graph",
    "tf.contrib.util.ops_used_by_graph_def": "tensorflow.python.framework.meta_graph:ops_used_by_graph_def",
    # estimator
    "tf.contrib.estimator.multi_class_head": "tf.estimator.MultiClassHead",
    "tf.contrib.estimator.binary_classification_head": "tf.estimator.BinaryClassHead",
    "tf.contrib.estimator.regression_head": "tf.estimator.RegressionHead",
    "tf.contrib.estimator.multi_label_head": "tf.estimator.MultiLabelHead",
    "tf.contrib.estimator.multi_head": "tf.estimator.MultiHead",
}

MODULES = {
    "tf.contrib.autograph": ("tf.autograph",),
    "tf.contrib.checkpoint": ("tf.train", "tf.train.experimental"),
    "tf.contrib.cluster_resolver": ("tf.distribute.cluster_resolver",),
    "tf.contrib.data": ("tf.data.experimental", "tf.data"),
    "tf.contrib.distribute": ("tf.distribute", "tf.distribute.experimental"),
    "tf.contrib.distributions": ("tf.distributions",),
    "tf.contrib.estimator": ("tf.estimator.experimental", "tf.estimator"),
    "tf.contrib.keras": ("tf.keras",),
    "tf.contrib.lite": ("tf.lite",),
    "tf.contrib.lookup.lookup_ops": ("tf.contrib.lookup",),
    "tf.contrib.mixed_precision": ("tf.mixed_precision", "tf.train.experimental"),
    "tf.contrib.opt.python.training.lazy_adam_optimizer": ("tf.contrib.opt",),
    "tf.contrib.opt.python.training.weight_decay_optimizers": ("tf.contrib.opt",),
    "tf.contrib.rnn": ("tf.nn.rnn_cell", "tf.nn"),
    "tf.contrib.rnn.python.ops": ("tf.contrib.rnn",),
    "tf.contrib.rnn.python.ops.core_rnn": ("tf.contrib.rnn",),
    "tf.contrib.rnn.python.ops.core_rnn_cell": ("tf.contrib.rnn",),
    "tf.contrib.rnn.python.ops.core_rnn_cell_impl": ("tf.contrib.rnn",),
    "tf.contrib.rnn.python.ops.rnn_cell": ("tf.contrib.rnn",),
    "tf.contrib.signal": ("tf.signal",),
    "tf.contrib.tpu": ("tf.tpu", "tf.estimator.tpu"),
    "tf.contrib.training.python.training.hparam": ("tf.contrib.training",),
    "tf.contrib.training.python.training.device_setter": ("tf.contrib.training",),
    "tf.contrib.training.python.training": ("tf.contrib.training",),
}
