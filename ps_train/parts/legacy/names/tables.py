"""The tables of names: name in TF1 -> what it is today, and advice for names without a stand-in.

The names that compat.v1 still has, such as `tf.app`, `tf.ConfigProto` or `tf.initialize_all_variables`, need no entry.
Of tf.contrib, layers, slim, framework, losses and metrics live on in TF-Slim; learn runs on the Estimator, which was
made of it, and needs the extra `estimator`. Nothing here imports TensorFlow, so a document can show the tables.
"""

from __future__ import annotations

import dataclasses

from ps_train.parts.legacy.names.advice import ADVICE
from ps_train.parts.legacy.names.further_names import FURTHER_MODULES, FURTHER_NAMES
from ps_train.parts.legacy.names.further_names import same as _same
from ps_train.parts.legacy.names.inner_modules import inner_modules
from ps_train.parts.legacy.names.namespace import Tables

_OURS = "ps_train.parts.legacy.names."
_FUNCTIONS = _OURS + "functions:"
_CONTRIB = _OURS + "contrib:"
_COLUMNS = _OURS + "feature_columns:"
_EXAMPLES = _OURS + "examples:"
_LEARN, _INPUTS = _OURS + "learn:", _OURS + "learn_inputs:"
_METRICS, _EXPERIMENT = _OURS + "learn_metrics:", _OURS + "learn_experiment:"
_LOOKUP = "tensorflow.python.ops.lookup_ops:"
_SUMMARY = "tensorflow.python.ops.summary_ops_v2:"
_RNN = _OURS + "rnn:"
_SEQ2SEQ = "ps_train.parts.legacy.names.seq2seq"


def _lookups(target: str, module: str, submodules: str) -> dict[str, tuple[str, ...]]:
    """Returns `module.submodule` -> where its names are looked up, for each of the submodules."""
    return {f"{module}.{submodule}": (target,) for submodule in submodules.split()}


_DEEPREC = "ps_train.parts.legacy.deeprec."

# Names of DeepRec and PAI.
_DEEPREC_NAMES = {
    **_same("tf", _DEEPREC + "options:", "CBFFilter CheckpointOption CounterFilter EmbeddingVariableOption "
            "GlobalStepEvict InitializerOption L2WeightEvict StorageOption"),
    "tf.get_embedding_variable": _DEEPREC + "variables:embedding_variable",
    **_same("tf.feature_column", _DEEPREC + "columns:", "categorical_column_with_embedding "
            "sequence_categorical_column_with_embedding shared_embedding_column"),
    **_same("tf.nn", _DEEPREC + "speed:", "fused_embedding_lookup_sparse fused_safe_embedding_lookup_sparse "
            "group_embedding_lookup group_embedding_lookup_sparse"),
    "tf.feature_column.group_embedding_column_scope": _DEEPREC + "speed:group_embedding_column_scope",
    "tf.config.experimental.enable_distributed_strategy": _DEEPREC + "speed:enable_distributed_strategy",
    **_same("tf.train", _DEEPREC + "optimizers:",
            "AdagradDecayOptimizer AdagradDecayOptimizerV2 AdamAsyncOptimizer"),
    **_same("tf", _DEEPREC + "speed:", "ExecutorPolicy make_prefetch_hook staged"),
}

# Names of `tf` that were renamed, from 0.8 to 1.15, and that compat.v1 does not have either.
_NAMES = {
    # 1.0: arithmetic and arrays
    "tf.mul": "tf.multiply",
    "tf.sub": "tf.subtract",
    "tf.neg": "tf.negative",
    "tf.inv": "tf.reciprocal",
    "tf.complex_abs": "tf.abs",
    "tf.pack": "tf.stack",
    "tf.unpack": "tf.unstack",
    "tf.listdiff": "tf.setdiff1d",
    "tf.list_diff": "tf.setdiff1d",
    **_same("tf", _FUNCTIONS, "select batch_matmul"),
    **{f"tf.batch_{name}": f"tf.{name}" for name in (
        "matrix_band_part", "matrix_diag", "matrix_diag_part", "matrix_set_diag", "matrix_transpose",
        "matrix_determinant", "matrix_inverse", "matrix_solve", "matrix_solve_ls", "matrix_triangular_solve",
        "cholesky", "cholesky_solve", "self_adjoint_eig", "self_adjoint_eigvals", "svd", "fft", "ifft", "fft2d",
        "ifft2d", "fft3d", "ifft3d")},
    "tf.image.resize_images": _CONTRIB + "resize_images",
    "tf.image.per_image_whitening": "tf.image.per_image_standardization",
    # 1.0: the order of arguments, where the old one can be recognised
    **_same("tf", _FUNCTIONS, "concat split reverse"),
    "tf.concat_v2": _FUNCTIONS + "concat",
    "tf.split_v": _FUNCTIONS + "split",
    "tf.reverse_v2": _FUNCTIONS + "reverse",
    **_same("tf.nn", _FUNCTIONS, "softmax_cross_entropy_with_logits sparse_softmax_cross_entropy_with_logits "
                                 "sigmoid_cross_entropy_with_logits nce_loss sampled_softmax_loss ctc_loss"),
    # Today's static shape has the batch of the input, and no longer that of `output_shape`.
    **_same("tf.nn", _FUNCTIONS, "conv2d_transpose conv3d_transpose"),
    # 1.0: summaries
    **_same("tf", _FUNCTIONS, "scalar_summary histogram_summary image_summary audio_summary"),
    "tf.merge_summary": "tf.summary.merge",
    "tf.merge_all_summaries": "tf.summary.merge_all",
    "tf.train.SummaryWriter": "tf.summary.FileWriter",
    "tf.train.SummaryWriterCache": "tf.summary.FileWriterCache",
    # 1.0: recurrent networks
    "tf.nn.rnn": "tf.nn.static_rnn",
    "tf.nn.bidirectional_rnn": "tf.nn.static_bidirectional_rnn",
    "tf.nn.state_saving_rnn": "tf.nn.static_state_saving_rnn",
    **_same("tf.nn.rnn_cell", _RNN, "EmbeddingWrapper InputProjectionWrapper OutputProjectionWrapper"),
    **{f"tf.{module}.sequence_loss": _SEQ2SEQ + ":list_sequence_loss" for module in (
        "contrib.legacy_seq2seq", "nn.seq2seq", "models.rnn.seq2seq")},
    # 0.12: functions of a shape, which are classes today
    **_same("tf", _FUNCTIONS, "zeros_initializer ones_initializer"),
    # 1.0: the second version of a class took the first one's name
    "tf.train.SyncReplicasOptimizerV2": "tf.train.SyncReplicasOptimizer",
    # 2.x: of modules that both have. Most other names there, such as tf.random.set_seed, mean nothing in a graph.
    "tf.keras.losses.Reduction": "tf_keras.api._v2.keras.losses:Reduction",
    "tf.distribute.experimental.partitioners": "tensorflow._api.v2.distribute.experimental.partitioners",
    "tf.distribute.MultiWorkerMirroredStrategy": "tf.distribute.experimental.MultiWorkerMirroredStrategy",
    # The whole modules, which the copies inside compat.v1 are not
    "tf.compat.v1": "tensorflow.compat.v1",
    "tf.compat.v2": "tensorflow.compat.v2",
    # examples, and Keras' MNIST
    **_same("tf.examples.tutorials.mnist.input_data", _EXAMPLES, "read_data_sets DataSet dense_to_one_hot"),
    **_same("tf.examples.tutorials.mnist.mnist", _EXAMPLES + "mnist_", "inference loss training evaluation"),
    **_same("tf.examples.tutorials.mnist.mnist", _EXAMPLES, "NUM_CLASSES IMAGE_SIZE IMAGE_PIXELS"),
}

_CONTRIB_NAMES = {
    # data, distribute
    **_same("tf.contrib.data", _OURS + "datasets:", "batch_and_drop_remainder padded_batch_and_drop_remainder"),
    "tf.contrib.data.AUTOTUNE": "tf.data.experimental.AUTOTUNE",
    "tf.contrib.data.python.ops.threadpool.PrivateThreadPool": _OURS + "datasets:private_thread_pool",
    "tf.contrib.data.python.ops.threadpool.override_threadpool": _OURS + "datasets:override_threadpool",
    "tf.contrib.distribute.MirroredStrategy": _FUNCTIONS + "mirrored_strategy",
    "tf.contrib.distribute.CollectiveAllReduceStrategy": _FUNCTIONS + "collective_all_reduce_strategy",
    "tf.contrib.distribute.ParameterServerStrategy": _FUNCTIONS + "parameter_server_strategy",
    "tf.contrib.distribute.DistributeConfig": "tensorflow.python.distribute.distribute_config:DistributeConfig",
    "tf.contrib.distribute.AllReduceCrossDeviceOps":
        "tensorflow.python.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "tf.contrib.distribute.ReductionToOneDeviceCrossDeviceOps": "tf.distribute.ReductionToOneDevice",
    # deprecated
    **_same("tf.contrib.deprecated", _FUNCTIONS, "scalar_summary histogram_summary image_summary audio_summary"),
    "tf.contrib.deprecated.merge_summary": "tf.summary.merge",
    "tf.contrib.deprecated.merge_all_summaries": "tf.summary.merge_all",
    # eager
    **_same("tf.contrib.eager", "tf.", "enable_eager_execution executing_eagerly Variable GradientTape"),
    "tf.contrib.eager.in_eager_mode": "tf.executing_eagerly",
    "tf.contrib.eager.list_devices": _FUNCTIONS + "list_devices",
    "tf.contrib.eager.num_gpus": "tensorflow.python.eager.context:num_gpus",
    "tf.contrib.eager.py_func": "tf.py_function",
    "tf.contrib.eager.defun": "tf.function",
    # estimator
    **_same("tf.contrib.estimator", _OURS + "heads:", "multi_class_head binary_classification_head regression_head "
            "multi_label_head multi_head logistic_regression_head poisson_regression_head"),
    "tf.contrib.estimator.forward_features": _OURS + "estimators:forward_features",
    # framework
    **_same("tf.contrib.framework", "tf.train.", "get_or_create_global_step get_global_step create_global_step "
            "assert_global_step"),
    **_same("tf.contrib.framework", _FUNCTIONS, "load_checkpoint load_variable list_variables init_from_checkpoint"),
    **_same("tf.contrib.framework", "tf.", "is_tensor is_non_decreasing is_strictly_increasing assert_scalar "
            "convert_to_tensor_or_sparse_tensor CriticalSection TensorSpec argsort sort"),
    **_same("tf.contrib.framework", "tf.debugging.", "is_numeric_tensor assert_same_float_dtype"),
    **_same("tf.contrib.framework", "tensorflow.python.util.deprecation:",
            "deprecated deprecated_args deprecated_arg_values"),
    **_same("tf.contrib.framework", "tensorflow.python.framework.ops:", "prepend_name_scope strip_name_scope"),
    "tf.contrib.framework.nest": "tensorflow.python.util.nest",
    "tf.contrib.framework.remove_squeezable_dimensions":
        "tensorflow.python.ops.confusion_matrix:remove_squeezable_dimensions",
    "tf.contrib.framework.smart_cond": "tensorflow.python.framework.smart_cond:smart_cond",
    "tf.contrib.framework.BoundedTensorSpec": "tensorflow.python.framework.tensor_spec:BoundedTensorSpec",
    # layers: feature columns, then the rest
    **_same("tf.contrib.layers", _COLUMNS, "real_valued_column bucketized_column sparse_column_with_hash_bucket "
            "sparse_column_with_integerized_feature sparse_column_with_keys sparse_column_with_vocabulary_file "
            "weighted_sparse_column crossed_column embedding_column input_from_feature_columns "
            "weighted_sum_from_feature_columns SPARSE_FEATURE_CROSS_DEFAULT_HASH_KEY"),
    **_same("tf.contrib.layers", _FUNCTIONS, "embed_sequence bow_encoder optimize_loss"),
    "tf.contrib.layers.shared_embedding_columns": _COLUMNS + "contrib_shared_embedding_columns",
    "tf.contrib.layers.one_hot_column": _CONTRIB + "one_hot_column",
    "tf.contrib.layers.create_feature_spec_for_parsing": "tf.feature_column.make_parse_example_spec",
    "tf.contrib.layers.safe_embedding_lookup_sparse": "tf.nn.safe_embedding_lookup_sparse",
    **_same("tf.contrib.nccl", _OURS + "nccl:", "all_sum all_prod all_min all_max reduce_sum"),
    "tf.contrib.nccl.broadcast": _OURS + "nccl:copy_to_users",
    **_same("tf.contrib.losses", _OURS + "losses:", "absolute_difference hinge_loss log_loss mean_squared_error "
            "mean_pairwise_squared_error sigmoid_cross_entropy softmax_cross_entropy sparse_softmax_cross_entropy "
            "compute_weighted_loss cosine_distance"),
    **_same("tf.contrib.slim.losses", "tf.contrib.losses.", "absolute_difference hinge_loss log_loss "
            "mean_squared_error mean_pairwise_squared_error sigmoid_cross_entropy softmax_cross_entropy "
            "sparse_softmax_cross_entropy compute_weighted_loss cosine_distance"),
    # batching, compiler, factorization, feature_column, staging, stateless
    "tf.contrib.batching.batch_function": "tf.nondifferentiable_batch_function",
    "tf.contrib.compiler.jit.experimental_jit_scope": "tf.xla.experimental.jit_scope",
    "tf.contrib.compiler.xla.compile": "tf.xla.experimental.compile",
    "tf.contrib.factorization.KMeansClustering": _OURS + "estimators:KMeansClustering",
    "tf.contrib.feature_column.sequence_input_layer": _COLUMNS + "sequence_input_layer",
    "tf.contrib.staging.StagingArea": "tensorflow.python.ops.data_flow_ops:StagingArea",
    **{f"tf.contrib.stateless.stateless_{name}": f"tf.random.stateless_{today}" for name, today in (
        ("random_uniform", "uniform"), ("random_normal", "normal"), ("truncated_normal", "truncated_normal"),
        ("multinomial", "multinomial"))},
    # learn
    "tf.contrib.learn.InputFnOps": _LEARN + "InputFnOps",
    "tf.contrib.learn.io.generator_input_fn": _INPUTS + "generator_input_fn",
    "tf.contrib.learn.SKCompat": _LEARN + "SKCompat",
    **_same("tf.contrib.learn.preprocessing", _OURS + "preprocessing:",
            "VocabularyProcessor CategoricalVocabulary tokenizer"),
    **_same("tf.contrib.learn", _LEARN + "Learn", "Estimator ModeKeys"),
    **_same("tf.contrib.learn", _OURS + "learn_models:Learn", "DNNClassifier DNNRegressor LinearClassifier "
            "LinearRegressor DNNLinearCombinedClassifier DNNLinearCombinedRegressor"),
    "tf.contrib.learn.RunConfig": _OURS + "run_config:LearnRunConfig",
    **_same("tf.contrib.learn", _METRICS, "MetricSpec PredictionKey ProblemType"),
    **_same("tf.contrib.learn", _EXPERIMENT, "Experiment make_export_strategy"),
    **_same("tf.contrib.learn", _LEARN, "InputFnOps build_parsing_serving_input_fn build_default_serving_input_fn"),
    **_same("tf.contrib.learn", _INPUTS,
            "infer_real_valued_columns_from_input infer_real_valued_columns_from_input_fn"),
    **_same("tf.contrib.learn.utils.input_fn_utils", _LEARN,
            "InputFnOps build_parsing_serving_input_fn build_default_serving_input_fn"),
    **_same("tf.contrib.learn.datasets.base", _EXAMPLES, "maybe_download load_csv_with_header load_csv_without_header"),
    **_same("tf.contrib.learn.models", _OURS + "estimators:", "logistic_regression linear_regression "
            "logistic_regression_zero_init linear_regression_zero_init"),
    "tf.contrib.learn.ModelFnOps": _LEARN + "ModelFnOps",
    "tf.contrib.learn.TaskType": "tensorflow_estimator.python.estimator.run_config:TaskType",
    "tf.contrib.learn.learn_runner.run": _EXPERIMENT + "run_experiment",
    **_same("tf.contrib.learn.io", _INPUTS, "numpy_input_fn pandas_input_fn"),
    **_same("tf.contrib.learn.io", _OURS + "batch_reading:", "read_batch_examples read_batch_features "
            "read_batch_record_features read_keyed_batch_examples read_keyed_batch_features"),
    **_same("tf.contrib.learn", _OURS + "batch_reading:", "read_batch_examples read_batch_features "
            "read_batch_record_features"),
    "tf.contrib.learn.utils.make_export_strategy": _EXPERIMENT + "make_export_strategy",
    "tf.contrib.learn.utils.saved_model_export_utils.make_export_strategy": _EXPERIMENT + "make_export_strategy",
    **_same("tf.contrib.learn.utils.saved_model_export_utils", "tensorflow.python.saved_model.model_utils:",
            "get_timestamped_export_dir get_temp_export_dir"),
    **_same("tf.contrib.learn.utils.saved_model_export_utils", _OURS + "learn_exports:",
            "get_most_recent_export garbage_collect_exports"),
    **_same("tf.contrib.learn.utils.gc", "tensorflow_estimator.python.estimator.gc:_", "largest_export_versions "
            "one_of_every_n_export_versions mod_export_version union negation get_paths"),
    "tf.contrib.learn.utils.gc.Path": "tensorflow_estimator.python.estimator.gc:Path",
    "tf.contrib.learn.utils.InputFnOps": _LEARN + "InputFnOps",
    "tf.contrib.learn.utils.build_parsing_serving_input_fn": _LEARN + "build_parsing_serving_input_fn",
    "tf.contrib.learn.metric_spec.MetricSpec": _METRICS + "MetricSpec",
    "tf.contrib.learn.datasets.DATASETS": _EXAMPLES + "DATASETS",
    "tf.contrib.learn.datasets.load_dataset": _EXAMPLES + "load_learn_dataset",
    "tf.contrib.learn.datasets.mnist.read_data_sets": "tf.examples.tutorials.mnist.input_data.read_data_sets",
    "tf.contrib.learn.datasets.mnist.load_mnist": _EXAMPLES + "load_mnist_sets",
    "tf.contrib.learn.datasets.base.Dataset": _EXAMPLES + "LearnDataset",
    "tf.contrib.learn.datasets.base.Datasets": _EXAMPLES + "LearnDatasets",
    # lookup
    **_same("tf.contrib.lookup", _CONTRIB, "string_to_index index_to_string HashTable MutableHashTable "
            "MutableDenseHashTable"),
    **_same("tf.contrib.lookup", _FUNCTIONS, "index_table_from_tensor index_to_string_table_from_tensor"),
    **_same("tf.contrib.lookup", _LOOKUP, "index_table_from_file index_to_string_table_from_file "
            "IdTableWithHashBuckets TextFileIdTableInitializer TextFileStringTableInitializer FastHashSpec "
            "StrongHashSpec HasherSpec LookupInterface InitializableLookupTableBase TableInitializerBase"),
    **_same("tf.contrib.lookup", "tf.lookup.", "KeyValueTensorInitializer TextFileInitializer TextFileIndex"),
    "tf.contrib.lookup.string_to_index_table_from_tensor": _FUNCTIONS + "index_table_from_tensor",
    "tf.contrib.lookup.string_to_index_table_from_file": _LOOKUP + "index_table_from_file",
    # metrics
    "tf.contrib.metrics.confusion_matrix": "tf.confusion_matrix",
    **_same("tf.contrib.metrics", "tf.sets.", "set_difference set_intersection set_size set_union"),
    # nn
    **{f"tf.contrib.nn.deprecated_flipped_{name}": _FUNCTIONS + name for name in (
        "softmax_cross_entropy_with_logits", "sparse_softmax_cross_entropy_with_logits",
        "sigmoid_cross_entropy_with_logits")},
    # opt
    **_same("tf.contrib.opt", _OURS + "optimizers:",
            "LazyAdamOptimizer AdamWOptimizer MomentumWOptimizer NadamOptimizer DecoupledWeightDecayExtension "
            "extend_with_decoupled_weight_decay"),
    # rnn, seq2seq
    **_same("tf.contrib.rnn", _OURS + "cells:", "LayerNormBasicLSTMCell NASCell ConvLSTMCell Conv1DLSTMCell "
            "Conv2DLSTMCell Conv3DLSTMCell FusedRNNCell FusedRNNCellAdaptor LSTMBlockCell LSTMBlockFusedCell "
            "LSTMBlockWrapper TimeReversedFusedRNN GRUBlockCell GRUBlockCellV2"),
    "tf.contrib.linalg.LinearOperatorTriL": "tf.linalg.LinearOperatorLowerTriangular",
    **_same("tf.contrib.rnn", _OURS + "private:", "_linear _Linear"),
    "tf.contrib.rnn.transpose_batch_time": _FUNCTIONS + "transpose_batch_time",
    **_same("tf.contrib.rnn", _RNN, "EmbeddingWrapper InputProjectionWrapper OutputProjectionWrapper "
            "stack_bidirectional_rnn stack_bidirectional_dynamic_rnn"),
    "tf.contrib.seq2seq.sequence_loss": _FUNCTIONS + "sequence_loss",
    "tf.contrib.seq2seq.python.ops.decoder._transpose_batch_time":
        "tensorflow.python.ops.rnn:_transpose_batch_time",
    # slim
    **_same("tf.contrib.slim.nets", "tf_slim.nets.", "alexnet inception inception_v1 inception_v2 inception_v3 "
            "overfeat vgg"),
    **_same("tf.contrib.slim.nets", _OURS + "resnets:", "resnet_utils resnet_v1 resnet_v2"),
    **_same("tf.contrib.slim.python.slim.data", "tf_slim.data.", "data_decoder data_provider dataset "
            "dataset_data_provider parallel_reader prefetch_queue tfexample_decoder"),
    # summary
    **_same("tf.contrib.summary", _SUMMARY, "always_record_summaries never_record_summaries "
            "record_summaries_every_n_global_steps should_record_summaries summary_writer_initializer_op scalar "
            "histogram image audio generic import_event flush initialize eval_dir create_summary_file_writer "
            "SummaryWriter create_file_writer"),
    "tf.contrib.summary.all_summary_ops": _SUMMARY + "all_v2_summary_ops",
    "tf.contrib.summary.graph": _SUMMARY + "graph_v1",
    # tensorboard, tfprof
    "tf.contrib.tensorboard.plugins.projector": "tensorboard.plugins.projector",
    "tf.contrib.tfprof.tfprof_logger.write_op_log": "tf.profiler.write_op_log",
    **_same("tf.contrib.tfprof.model_analyzer", _FUNCTIONS,
            "print_model_analysis FLOAT_OPS_OPTIONS TRAINABLE_VARS_PARAMS_STAT_OPTIONS"),
    # training
    **_same("tf.contrib.training", _OURS + "hparams:", "HParams parse_values"),
    **_same("tf.contrib.training", _OURS + "buckets:", "bucket bucket_by_sequence_length"),
    **_same("tf.contrib.training", _FUNCTIONS, "GreedyLoadBalancingStrategy RandomStrategy byte_size_load_fn"),
    **_same("tf.contrib.training", "tf_slim.training.training:", "add_gradients_summaries clip_gradient_norms "
            "clip_gradient_norms_fn create_train_op multiply_gradients train"),
    **_same("tf.contrib.training", "tf_slim.training.evaluation:", "StopAfterNEvalsHook SummaryAtEndHook "
            "checkpoints_iterator evaluate_once evaluate_repeatedly get_or_create_eval_step wait_for_new_checkpoint"),
    # util
    **_same("tf.contrib.util", "tf.", "make_tensor_proto make_ndarray"),
    "tf.contrib.util.constant_value": "tf.get_static_value",
    **_same("tf.contrib.util", "tensorflow.python.framework.meta_graph:",
            "stripped_op_list_for_graph ops_used_by_graph_def"),
}

# Folders of tensorflow/models that were part of TensorFlow until 0.12, and whose modules scripts have copies of.
MODELS = tuple(f"tf.models.{folder}" for folder in (
    "embedding", "image.alexnet", "image.cifar10", "image.imagenet", "image.mnist", "rnn.ptb", "rnn.translate"))

# Module of tf.contrib -> the modules in which its names are looked up.
_CONTRIB_MODULES = {
    "tf.contrib.autograph": ("tf.autograph",),
    "tf.contrib.checkpoint": ("tf.train", "tf.train.experimental"),
    "tf.contrib.cluster_resolver": ("tf.distribute.cluster_resolver",),
    "tf.contrib.cudnn_rnn": (_OURS + "cudnn_rnn",),
    "tf.contrib.data": ("tf.data.experimental", "tf.data"),
    # For tensorflow-estimator, which asks whether the optimizer of a compiled model is a new one.
    "tf.keras.optimizers.experimental": ("tf_keras.api._v2.keras.optimizers.experimental",),
    "tf.contrib.distribute": ("tf.distribute", "tf.distribute.experimental"),
    # All of TensorFlow Probability's, if it is installed: its classes do not mix with those of tf.distributions.
    "tf.contrib.distributions": (_OURS + "probability", "tensorflow_probability.distributions", _OURS + "distributions",
                                 "tf.distributions"),
    "tf.contrib.distributions.bijectors": ("tensorflow_probability.bijectors",),
    "tf.contrib.estimator": ("tf.estimator.experimental", "tf.estimator"),
    "tf.contrib.keras": ("tf.keras",),
    "tf.contrib.feature_column": ("tf.feature_column",),
    "tf.contrib.linalg": ("tf.linalg",),
    "tf.contrib.learn.monitors": (_OURS + "monitors",),
    "tf.contrib.lite": ("tf.lite",),
    "tf.contrib.optimizer_v2": ("tf.train",),
    "tf.contrib.mixed_precision": ("tf.mixed_precision", "tf.train.experimental"),
    "tf.contrib.rnn": ("tf.nn.rnn_cell", "tf.nn"),
    "tf.contrib.signal": ("tf.signal",),
    "tf.contrib.tpu": ("tf.tpu", "tf.estimator.tpu"),
    # In TF-Slim. Predictions come before labels there, in tf.losses and tf.metrics after them.
    "tf.contrib.framework": ("tf_slim.ops.arg_scope", "tf_slim.ops.variables", "tf_slim.ops.framework_ops"),
    "tf.contrib.layers": ("tf_slim.layers", "tf_slim.layers.optimizers", "tf_slim.layers.summaries"),
    "tf.contrib.layers.python.ops.sparse_ops": ("tf_slim.layers.sparse_ops",),
    "tf.contrib.losses": ("tf_slim.losses.loss_ops",),
    "tf.contrib.losses.metric_learning": ("tf_slim.losses.metric_learning",),
    "tf.contrib.losses.python.losses.loss_ops": ("tf_slim.losses.loss_ops",),
    "tf.contrib.metrics": ("tf_slim.metrics.metric_ops", "tf_slim.metrics.classification",
                           "tf_slim.metrics.histogram_ops"),
    "tf.contrib.slim": ("tf_slim", "tf.contrib.layers"),
    "tf.contrib.slim.losses": ("tf_slim.losses.loss_ops", "tf_slim.losses.metric_learning"),
    "tf.contrib.slim.metrics": ("tf.contrib.metrics",),
    "tf.contrib.crf": (_OURS + "crf",),
    "tf.contrib.seq2seq": tuple(_OURS + name for name in (
        "attention", "decoding", "beam_search", "monotonic_attention")),
    "tf.contrib.legacy_seq2seq": (_SEQ2SEQ,), "tf.nn.seq2seq": (_SEQ2SEQ,),
    # In 0.5 and 0.6; the folders of models are for the copies of their modules beside a script.
    "tf.models.rnn": ("tf.nn", "tf.nn.rnn_cell"),
    "tf.models.rnn.rnn": ("tf.nn",),
    "tf.models.rnn.seq2seq": (_SEQ2SEQ,),
    **{folder: () for folder in MODELS},
    # Modules inside a module
    "tf.contrib.framework.python.framework.checkpoint_utils": ("tf.train",),
    "tf.contrib.framework.python.ops.audio_ops": ("tensorflow.python.ops.gen_audio_ops",),
    "tf.contrib.framework.python.ops.script_ops": ("tensorflow.python.ops.script_ops",),
    **_lookups("tf.contrib.learn", "tf.contrib.learn", "estimators estimators.model_fn estimators.run_config "
               "estimators.estimator estimators.dnn estimators.linear estimators.dnn_linear_combined "
               "estimators.prediction_key estimators.constants experiment run_config"),
    "tf.contrib.session_bundle": (), "tf.contrib.session_bundle.exporter": (_OURS + "exporter",),
    "tf.contrib.slim.python.slim": ("tf.contrib.slim",),
}

# Without the modules inside those of tf.contrib.
OUTER = Tables(
    names={**_NAMES, **_CONTRIB_NAMES, **FURTHER_NAMES, **_DEEPREC_NAMES},
    modules={**_CONTRIB_MODULES, **FURTHER_MODULES}, advice=ADVICE).with_parents()
_INNER = inner_modules(OUTER.modules)
TABLES = dataclasses.replace(OUTER, modules={
    **_INNER, **{module: sources or _INNER.get(module, ()) for module, sources in OUTER.modules.items()},
}).with_parents()

# Names that numpy has taken away, from 1.18 to 2.4 -> what they were. They are set in numpy itself.
NUMPY = {
    "int": "builtins:int", "float": "builtins:float", "bool": "builtins:bool", "complex": "builtins:complex",
    "object": "builtins:object", "str": "builtins:str", "long": "builtins:int", "unicode": "builtins:str",
    "float_": "numpy:float64", "complex_": "numpy:complex128", "string_": "numpy:bytes_", "unicode_": "numpy:str_",
    "Inf": "numpy:inf", "Infinity": "numpy:inf", "infty": "numpy:inf", "PINF": "numpy:inf", "NaN": "numpy:nan",
    "NAN": "numpy:nan", "product": "numpy:prod", "cumproduct": "numpy:cumprod", "sometrue": "numpy:any",
    "alltrue": "numpy:all", "row_stack": "numpy:vstack", "mat": "numpy:asmatrix",
    "round_": "numpy:round", "alen": "builtins:len", "rank": "numpy:ndim", "trapz": "numpy:trapezoid",
    "bool8": "numpy:bool_", "int0": "numpy:intp", "uint0": "numpy:uintp", "object0": "numpy:object_",
    "str0": "numpy:str_", "bytes0": "numpy:bytes_", "void0": "numpy:void", "singlecomplex": "numpy:complex64",
    "cfloat": "numpy:complex128", "longfloat": "numpy:longdouble", "clongfloat": "numpy:clongdouble",
    "longcomplex": "numpy:clongdouble",
    "typeDict": "numpy:sctypeDict", "math": "math", "issubclass_": "builtins:issubclass", "loads": "pickle:loads",
    "issubsctype": "numpy:issubdtype",
    **{name: _OURS + "arrays:" + name for name in (
        "asscalar", "NINF", "PZERO", "NZERO", "in1d", "asfarray", "msort", "cast", "nbytes", "sctypes",
        "find_common_type")},
    **{name: "numpy.exceptions:" + name for name in (
        "AxisError", "ComplexWarning", "RankWarning", "VisibleDeprecationWarning")},
}
