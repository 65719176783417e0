"""Tables as those of `tables.py`: names of `tf.contrib` that few jobs use."""

from __future__ import annotations

_OURS = "ps_train.parts.legacy.names."
_FUNCTIONS = _OURS + "more_functions:"
_SERIES = "tensorflow_estimator.python.estimator.canned.timeseries."

_HEADS = "Head binary_svm_head multi_class_head multi_head multi_label_head no_op_train_fn"
_LEARN = "tf.contrib.learn"
_PANDAS = "extract_pandas_data extract_pandas_labels extract_pandas_matrix"


def same(module: str, target: str, names: str) -> dict[str, str]:
    """Returns `module.name` -> target + name, for each of the names."""
    return {f"{module}.{name}": target + name for name in names.split()}


FURTHER_NAMES = {
    # data, distribute, estimator
    **same("tf.contrib.data", _FUNCTIONS, "sliding_window_batch assert_element_shape sloppy_interleave"),
    "tf.contrib.data.read_batch_features": _FUNCTIONS + "contrib_data_read_batch_features",
    "tf.contrib.distribute.AllReduceCrossTowerOps": "tf.contrib.distribute.AllReduceCrossDeviceOps",
    "tf.contrib.distribute.get_tower_context": "tf.distribute.get_replica_context",
    "tf.uniform_unit_scaling_initializer": _FUNCTIONS + "uniform_unit_scaling_initializer",  # `full_shape` until 1.0
    "tf.contrib.distribute.run_standard_tensorflow_server": _FUNCTIONS + "run_standard_tensorflow_server",
    "tf.contrib.estimator.clip_gradients_by_norm": _OURS + "more_optimizers:clip_gradients_by_norm",
    "tf.contrib.estimator.replicate_model_fn": _FUNCTIONS + "replicate_model_fn",
    "tf.contrib.estimator.TowerOptimizer": _FUNCTIONS + "tower_optimizer",
    "tf.assert_variables_initialized": _FUNCTIONS + "assert_variables_initialized",
    # eager
    "tf.contrib.eager.Saver": _OURS + "eager_classes:EagerSaver",
    **{f"tf.contrib.eager.metrics.{name}": f"{_OURS}eager_classes:Eager{name}" for name in (
        "Mean", "Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "SparseAccuracy")},
    **same("tf.contrib.eager", "tensorflow.python.eager.backprop:", "gradients_function"),
    "tf.contrib.eager.implicit_gradients": "tensorflow.python.eager.backprop:implicit_grad",
    "tf.contrib.eager.implicit_value_and_gradients": "tensorflow.python.eager.backprop:implicit_val_and_grad",
    "tf.contrib.eager.value_and_gradients_function": "tensorflow.python.eager.backprop:val_and_grad_function",
    **same("tf.contrib.eager", "tensorflow.python.eager.context:", "DEVICE_PLACEMENT_EXPLICIT DEVICE_PLACEMENT_SILENT "
           "DEVICE_PLACEMENT_WARN execution_mode SYNC ASYNC"),
    **same("tf.contrib.eager", "tf.", "custom_gradient make_template"),
    "tf.contrib.eager.Checkpoint": "tf.train.Checkpoint",
    "tf.contrib.eager.EagerVariableStore": "tensorflow.python.ops.variable_scope:EagerVariableStore",
    "tf.contrib.eager.Iterator": "builtins:iter",
    "tf.contrib.eager.function": "tf.function",
    "tf.contrib.eager.Sequential": "tf.keras.Sequential",
    "tf.contrib.eager.TensorSpec": "tf.TensorSpec",
    # factorization
    "tf.contrib.factorization.WALSModel": _OURS + "factorization:WALSModel",
    "tf.contrib.factorization.WALSMatrixFactorization": _OURS + "learn_factorization:WALSMatrixFactorization",
    **same("tf.contrib.factorization", "tensorflow.python.ops.clustering_ops:", "KMeans RANDOM_INIT "
           "KMEANS_PLUS_PLUS_INIT COSINE_DISTANCE SQUARED_EUCLIDEAN_DISTANCE"),
    # framework, hooks
    **same("tf.contrib.framework", _FUNCTIONS, "with_shape with_same_shape reduce_sum_n assert_scalar_int"),
    **same("tf.contrib.framework", "tensorflow.python.framework.smart_cond:", "smart_case smart_constant_value"),
    **same("tf.contrib.framework", _OURS + "framework_functions:", "load_and_remap_matrix_initializer "
           "load_embedding_initializer load_variable_slot_initializer load_linear_multiclass_bias_initializer "
           "zero_initializer get_placeholders"),
    "tf.contrib.framework.py_func": _OURS + "framework_functions:contrib_py_func",
    "tf.contrib.framework.convolutional_delta_orthogonal":
        "tensorflow.python.ops.init_ops:ConvolutionDeltaOrthogonal",
    "tf.contrib.framework.convolutional_orthogonal_1d": "tensorflow.python.ops.init_ops:ConvolutionOrthogonal1D",
    "tf.contrib.framework.convolutional_orthogonal_2d": "tensorflow.python.ops.init_ops:ConvolutionOrthogonal2D",
    "tf.contrib.framework.convolutional_orthogonal_3d": "tensorflow.python.ops.init_ops:ConvolutionOrthogonal3D",
    "tf.contrib.hooks.ProfilerHook": "tf.train.ProfilerHook",
    # graph_editor, image, mixed_precision, nn
    "tf.contrib.graph_editor.connect": _OURS + "graph_editor:connect_views",
    **same("tf.contrib.image", _OURS + "image_warps:", "rotate translate transform compose_transforms "
           "angles_to_projective_transforms translations_to_projective_transforms flat_transforms_to_matrices "
           "matrices_to_flat_transforms dense_image_warp bipartite_match"),
    **same("tf.contrib.image", _OURS + "splines:", "interpolate_spline sparse_image_warp"),
    **same("tf.contrib.seq2seq", _OURS + "decoder_functions:",
           "dynamic_rnn_decoder simple_decoder_fn_train simple_decoder_fn_inference attention_decoder_fn_train "
           "attention_decoder_fn_inference prepare_attention"),
    "tf.logging._logger": _OURS + "private:_logger",
    "tf.contrib.resampler.resampler": _OURS + "image_warps:resampler",
    **same("tf.contrib.layers", _OURS + "transformed_columns:", "check_feature_columns transform_features "
           "parse_feature_columns_from_examples infer_real_valued_columns make_place_holder_tensors_for_base_features"),
    "tf.contrib.layers.embedding_lookup_unique": _FUNCTIONS + "embedding_lookup_unique",
    **same("tf.contrib.image.python.ops.distort_image_ops", _OURS + "image_warps:",
           "adjust_hsv_in_yiq random_hsv_in_yiq"),
    **same("tf.contrib.mixed_precision", _OURS + "loss_scale:", "LossScaleManager FixedLossScaleManager "
           "ExponentialUpdateLossScaleManager LossScaleOptimizer"),
    **same("tf.contrib.nn", _FUNCTIONS, "alpha_dropout conv1d_transpose scaled_softplus sampled_sparse_softmax_loss"),
    "tf.contrib.nn.rank_sampled_softmax_loss": _OURS + "framework_functions:rank_sampled_softmax_loss",
    "tf.contrib.nn.nth_element": "tensorflow.python.ops.nn_ops:nth_element",
    # keras, layers, memory_stats
    **same("tf.keras.mixed_precision.experimental", _OURS + "keras_policies:", "Policy set_policy"),
    "tf.keras.mixed_precision.experimental.LossScaleOptimizer": _OURS + "keras_policies:loss_scale_optimizer",
    "tf.keras.mixed_precision.experimental.global_policy": "tf_keras.mixed_precision:global_policy",
    **same("tf.keras.experimental", _OURS + "keras_policies:", "LinearCosineDecay NoisyLinearCosineDecay"),
    "tf.layers.Input": "tf.keras.Input",
    "tf.optimizers": "tf.keras.optimizers",  # of TensorFlow 2, whose own work in no graph since 2.11
    "tf.contrib.memory_stats.MaxBytesInUse": _FUNCTIONS + "max_bytes_in_use",
    "tf.contrib.memory_stats.BytesInUse": _FUNCTIONS + "bytes_in_use",
    # learn, opt, predictor, saved_model
    "tf.contrib.learn.KMeansClustering": _OURS + "learn_clusters:LearnKMeansClustering",
    **same("tf.contrib.learn.ops", _OURS + "learn_ops:", "embedding_lookup categorical_variable"),
    **same("tf.contrib.learn.preprocessing", _OURS + "preprocessing:", "ByteProcessor"),
    **same("tf.contrib.learn", _OURS + "learn:", "Evaluable Trainable NotFittedError"),
    **{name: target for module in (_LEARN, f"{_LEARN}.head", f"{_LEARN}.estimators.head") for name, target in {
        **same(module, _OURS + "learn_heads:", _HEADS if module == _LEARN else f"{_HEADS} loss_only_head"),
        f"{module}.regression_head": _OURS + "learn_heads:learn_regression_head",
        f"{module}.poisson_regression_head": _OURS + "learn_heads:learn_poisson_head"}.items()},
    **same("tf.contrib.learn", _OURS + "learn_head_models:",
           "DNNEstimator LinearEstimator DNNLinearCombinedEstimator LogisticRegressor"),
    **same("tf.contrib.learn", _OURS + "batch_reading:", "read_keyed_batch_examples read_keyed_batch_features"),
    **same("tf.contrib.learn", _OURS + "learn_pandas:", _PANDAS),
    **same("tf.contrib.learn.io", _OURS + "learn_pandas:", _PANDAS),
    **same("tf.contrib.learn", _OURS + "learn_runs:", "run_n run_feeds infer"),
    "tf.contrib.learn.BaseEstimator": _OURS + "learn:Fitting",
    "tf.contrib.learn.ExportStrategy": _OURS + "learn_experiment:ExportStrategy",
    "tf.contrib.learn.export_strategy.ExportStrategy": _OURS + "learn_experiment:ExportStrategy",
    "tf.contrib.learn.NanLossDuringTrainingError": "tf.train.NanLossDuringTrainingError",
    # kernel_methods
    **same("tf.contrib.kernel_methods", _OURS + "kernel_methods:",
           "RandomFourierFeatureMapper sparse_multiclass_hinge_loss"),
    **same("tf.contrib.kernel_methods.python.mappers.dense_kernel_mapper", _OURS + "kernel_methods:",
           "DenseKernelMapper InvalidShapeError"),
    "tf.contrib.kernel_methods.KernelLinearClassifier": _OURS + "learn_head_models:KernelLinearClassifier",
    "tf.contrib.learn.evaluable.Evaluable": _OURS + "learn:Evaluable",
    "tf.contrib.learn.trainable.Trainable": _OURS + "learn:Trainable",
    "tf.contrib.learn.summary_writer_cache.SummaryWriterCache": "tf.summary.FileWriterCache",
    **same("tf.contrib.learn.datasets", _OURS + "examples:", "load_iris load_boston"),
    **same("tf.contrib.learn.datasets.base", _OURS + "examples:", "load_iris load_boston"),
    **same("tf.contrib.learn.estimators.test_data", _OURS + "learn_test_data:", "get_quantile_based_buckets "
           "prepare_iris_data_for_logistic_regression iris_input_multiclass_fn iris_input_logistic_fn"),
    **same("tf.contrib.opt", _OURS + "more_optimizers:", "AdaMaxOptimizer AddSignOptimizer PowerSignOptimizer "
           "LARSOptimizer MovingAverageOptimizer VariableClippingOptimizer MultitaskOptimizerWrapper "
           "clip_gradients_by_global_norm"),
    **same("tf.contrib.opt", _OURS + "external_optimizers:", "ExternalOptimizerInterface ScipyOptimizerInterface"),
    "tf.contrib.optimizer_v2.RMSPropOptimizer": _OURS + "more_optimizers:RMSPropOptimizer",
    **same("tf.contrib.opt", _OURS + "worker_optimizers:", "DropStaleGradientOptimizer ElasticAverageOptimizer "
           "ElasticAverageCustomGetter"),
    **same("tf.contrib.opt", _OURS + "averaging_optimizers:",
           "ModelAverageOptimizer ModelAverageCustomGetter AGNOptimizer AGNCustomGetter"),
    **same("tf.contrib.opt", _OURS + "optimizers:", "AdamGSOptimizer LazyAdamGSOptimizer RegAdagradOptimizer"),
    **same("tf.contrib.opt", _OURS + "matrix_optimizers:", "ShampooOptimizer GGTOptimizer"),
    **same("tf.contrib.opt.python.training.sign_decay", _OURS + "more_optimizers:",
           "get_linear_decay_fn get_cosine_decay_fn get_restart_decay_fn"),
    **same("tf.contrib.predictor", _OURS + "predictor:", "from_saved_model from_estimator from_contrib_estimator"),
    "tf.contrib.saved_model.save_keras_model": _OURS + "keras_exports:save_keras_model",
    "tf.contrib.saved_model.load_keras_model": _OURS + "keras_exports:load_exported_keras_model",
    # rnn
    **same("tf.contrib.rnn", _OURS + "gated_cells:", "UGRNNCell IntersectionRNNCell SRUCell IndRNNCell IndyGRUCell "
           "MinimalRNNCell CFNCell"),
    **same("tf.contrib.rnn", _OURS + "lstm_cells:", "CoupledInputForgetGateLSTMCell TimeFreqLSTMCell LayerNormLSTMCell "
           "WeightNormLSTMCell GLSTMCell IndyLSTMCell PhasedLSTMCell"),
    **same("tf.contrib.rnn", _OURS + "grid_cells:", "GridLSTMCell BidirectionalGridLSTMCell"),
    **same("tf.contrib.rnn", _OURS + "rnn:", "HighwayWrapper AttentionCellWrapper CompiledWrapper"),
    **same("tf.contrib.rnn", _OURS + "cell_helpers:", "_checked_scope _get_concat_variable _get_sharded_variable"),
    **same("tf.contrib.rnn", _OURS + "private:", "_like_rnncell _state_size_with_prefix"),
    "tf.contrib.rnn._RNNCell": "tf.nn.rnn_cell.RNNCell",
    **same("tf.contrib.seq2seq", _OURS + "cell_helpers:",
           "_prepare_memory _maybe_mask_score _create_zero_outputs _unstack_ta"),
    **same("tf.contrib.seq2seq", _OURS + "dynamic_attention:", "DynamicAttentionWrapper DynamicAttentionWrapperState"),
    "tf.contrib.rnn.best_effort_input_batch_size": "tensorflow.python.ops.rnn:_best_effort_input_batch_size",
    "tf.contrib.seq2seq._transpose_batch_time": "tensorflow.python.ops.rnn:_transpose_batch_time",
    "tf.contrib.seq2seq._zero_state_tensors": "tensorflow.python.ops.rnn_cell_impl:_zero_state_tensors",
    # timeseries
    **same("tf.contrib.timeseries", _OURS + "time_series:",
           "ARModel ARRegressor FlatPredictionModel predict_continuation_input_fn"),
    **same("tf.contrib.timeseries", _OURS + "time_series_readers:", "TimeSeriesReader NumpyReader CSVReader "
           "TFExampleReader TimeSeriesInputFn WholeDatasetInputFn RandomWindowInputFn"),
    "tf.contrib.timeseries.SequentialTimeSeriesModel": _OURS + "time_series_steps:SequentialTimeSeriesModel",
    "tf.contrib.timeseries.ChainingStateManager": _OURS + "time_series_states:ChainingStateManager",
    **same("tf.contrib.timeseries", _SERIES + "feature_keys:", "State Times Values TrainEvalFeatures "
           "PredictionFeatures FilteringFeatures PredictionResults FilteringResults SavedModelLabels"),
    **same("tf.contrib.timeseries", _SERIES + "model:", "TimeSeriesModel ModelOutputs"),
    **same("tf.contrib.timeseries", _SERIES + "state_management:", "PassthroughStateManager FilteringOnlyStateManager"),
    **same("tf.contrib.timeseries", _SERIES + "head:", "TimeSeriesRegressionHead OneShotPredictionHead"),
    **same("tf.contrib.timeseries", _SERIES + "estimators:", "TimeSeriesRegressor LSTMAutoRegressor"),
    "tf.contrib.timeseries.LSTMPredictionModel": _SERIES + "ar_model:LSTMPredictionModel",
    **{name: target for module in ("", "python.timeseries.") for name, target in same(
        f"tf.contrib.timeseries.{module}saved_model_utils", _OURS + "time_series:",
        "predict_continuation filter_continuation cold_start_filter").items()},
    # sparsemax, tpu, training
    **same("tf.contrib.training", _OURS + "sampling:",
           "rejection_sample stratified_sample resample_at_rate weighted_resample"),
    **same("tf.contrib.training", _OURS + "sequence_states:",
           "batch_sequences_with_states SequenceQueueingStateSaver NextQueuedSequenceBatch"),
    **same("tf.contrib.sparsemax", _FUNCTIONS, "sparsemax sparsemax_loss"),
    "tf.contrib.tpu.AsyncCheckpointSaverHook": "tf.train.CheckpointSaverHook",
    **same("tf.contrib.tpu.python.tpu", "tensorflow.python.tpu.", "device_assignment tpu tpu_feed tpu_function "
           "tpu_optimizer training_loop"),
    "tf.contrib.tpu.python.ops.tpu_ops": "tensorflow.python.tpu.ops.tpu_ops",
    **same("tf.contrib.tpu.python.tpu", "tensorflow_estimator.python.estimator.tpu.", "error_handling tpu_config "
           "tpu_context tpu_estimator util"),
}

# Module of tf.contrib -> the modules in which its names are looked up.
FURTHER_MODULES: dict[str, tuple[str, ...]] = {
    "tf.contrib.all_reduce.python.all_reduce": ("tensorflow.python.distribute.v1.all_reduce",),
    "tf.contrib.keras.python": (), "tf.contrib.keras.api.keras": ("tf.keras",),
    "tf.contrib.learn.datasets.mnist": ("tf.examples.tutorials.mnist.input_data",),
    "tf.contrib.eager.metrics": (),
    "tf.contrib.memory_stats.python.ops.memory_stats_ops": ("tf.contrib.memory_stats",),
    "tf.contrib.eager.python.metrics": ("tf.contrib.eager.metrics",),
    "tf.contrib.data.python.util": ("tensorflow.python.data.util",),
    **{f"tf.contrib.learn.{name}": ("tf.train",) for name in (
        "monitored_session", "basic_session_run_hooks", "session_run_hook")},
    # TF-GAN, if it is installed, which TensorFlow had as this module.
    "tf.contrib.gan": ("tensorflow_gan",),
    **{f"tf.contrib.gan.{name}": (f"tensorflow_gan.{name}",) for name in ("estimator", "eval", "features", "losses")},
    **{f"tf.contrib.gan.python.{name}": (f"tensorflow_gan.python.{ours}",) for name, ours in (
        ("namedtuples", "namedtuples"), ("train", "train"), ("losses.python.losses_impl", "losses.losses_impl"),
        ("losses.python.tuple_losses", "losses.tuple_losses"))},
    **{f"tf.contrib.nccl.{name}": ("tf.contrib.nccl",) for name in (
        "python", "python.ops", "python.ops.nccl_ops", "ops", "ops.nccl_ops")},
    **{f"tf.contrib.rnn.{name}": ("tf.contrib.rnn",) for name in ("core_rnn", "core_rnn_cell", "core_rnn_cell_impl")},
    "tf.contrib.graph_editor": tuple(_OURS + f"graph_editor{part}" for part in ("", "_selection", "_copies")),
    **{f"tf.contrib.graph_editor.{name}": ("tf.contrib.graph_editor",) for name in (
        "edit", "reroute", "select", "subgraph", "transform", "util")},
}
