"""Modules inside the modules of tf.contrib, such as `tf.contrib.layers.python.layers.embedding_ops`.

Scripts import them for names that the module around them has, too. The list is that of TensorFlow 1.0 to 1.15.
"""

from __future__ import annotations

from collections.abc import Container

# Module of tf.contrib, folder in it, modules of the folder.
_FOLDERS = (
    ("checkpoint", "python", "containers python_state split_dependency visualize"),
    ("cluster_resolver", "python.training", "cluster_resolver gce_cluster_resolver kubernetes_cluster_resolver "
     "slurm_cluster_resolver tfconfig_cluster_resolver tpu_cluster_resolver"),
    ("crf", "python.ops", "crf"),
    ("cudnn_rnn", "python.layers", "cudnn_rnn"),
    ("cudnn_rnn", "python.ops", "cudnn_rnn_ops"),
    ("data", "python.ops", "batching counter dataset_ops enumerate_ops error_ops get_single_element grouping "
     "interleave_ops iterator_ops parsing_ops prefetching_ops random_ops readers resampling scan_ops shuffle_ops "
     "sliding sloppy_ops stats_ops threadpool unique writers"),
    ("distribute", "python", "collective_all_reduce_strategy cross_tower_ops mirrored_strategy monitor "
     "one_device_strategy parameter_server_strategy step_fn tpu_strategy values"),
    ("distributions", "python.ops", "bernoulli beta categorical dirichlet exponential gamma kullback_leibler laplace "
     "mixture multinomial mvn_diag normal relaxed_onehot_categorical student_t uniform"),
    ("eager", "python", "checkpointable_utils datasets metrics metrics_impl network saver tfe"),
    ("estimator", "python.estimator", "baseline boosted_trees dnn dnn_linear_combined early_stopping export exporter "
     "extenders head hooks linear logit_fns multi_head replicate_model_fn rnn"),
    ("factorization", "python.ops", "clustering_ops factorization_ops gmm gmm_ops kmeans wals"),
    ("feature_column", "python.feature_column", "sequence_feature_column"),
    ("framework", "python.framework", "checkpoint_utils experimental graph_util tensor_util"),
    ("framework", "python.ops", "accumulate_n_v2 arg_scope audio_ops checkpoint_ops critical_section_ops ops "
     "prettyprint_ops script_ops sort_ops variables"),
    ("image", "python.ops", "dense_image_warp distort_image_ops image_ops interpolate_spline sparse_image_warp"),
    ("kernel_methods", "python", "kernel_estimators losses"),
    ("kernel_methods", "python.mappers", "dense_kernel_mapper random_fourier_features"),
    ("layers", "python.layers", "embedding_ops encoders feature_column feature_column_ops initializers layers "
     "normalization optimizers regularizers rev_block_lib summaries target_column utils"),
    ("layers", "python.ops", "bucketization_op sparse_feature_cross_op sparse_ops"),
    ("learn", "python.learn", "basic_session_run_hooks evaluable experiment export_strategy graph_actions learn_runner "
     "metric_spec models monitored_session monitors run_config session_run_hook summary_writer_cache trainable"),
    ("learn", "python.learn.datasets", "base mnist synthetic text_datasets"),
    ("learn", "python.learn.estimators", "_sklearn composable_model constants dnn dnn_linear_combined "
     "dynamic_rnn_estimator estimator head kmeans linear logistic_regressor metric_key model_fn prediction_key "
     "rnn_common run_config state_saving_rnn_estimator svm test_data"),
    ("learn", "python.learn.learn_io", "data_feeder generator_io graph_io numpy_io pandas_io"),
    ("learn", "python.learn.ops", "embeddings_ops losses_ops seq2seq_ops"),
    ("learn", "python.learn.preprocessing", "categorical categorical_vocabulary text"),
    ("learn", "python.learn.utils", "export gc input_fn_utils inspect_checkpoint saved_model_export_utils"),
    ("legacy_seq2seq", "python.ops", "seq2seq"),
    ("lookup", "", "lookup_ops"),
    ("losses", "python.losses", "loss_ops"),
    ("losses", "python.metric_learning", "metric_loss_ops"),
    ("metrics", "python.metrics", "classification"),
    ("metrics", "python.ops", "confusion_matrix_ops histogram_ops metric_ops set_ops"),
    ("mixed_precision", "python", "loss_scale_manager loss_scale_optimizer"),
    ("nn", "python.ops", "alpha_dropout cross_entropy fwd_gradients sampling_ops scaled_softplus"),
    ("opt", "python.training", "adam_gs_optimizer adamax addsign agn_optimizer drop_stale_gradient_optimizer "
     "elastic_average_optimizer external_optimizer ggt lars_optimizer lazy_adam_gs_optimizer lazy_adam_optimizer "
     "matrix_functions model_average_optimizer moving_average_optimizer multitask_optimizer_wrapper nadam_optimizer "
     "powersign reg_adagrad_optimizer shampoo sign_decay variable_clipping_optimizer weight_decay_optimizers"),
    ("optimizer_v2", "", "adadelta adagrad adam gradient_descent momentum optimizer_v2 rmsprop"),
    ("predictor", "", "core_estimator_predictor predictor predictor_factories saved_model_predictor"),
    ("resampler", "python.ops", "resampler_ops"),
    ("rnn", "python.ops", "core_rnn core_rnn_cell core_rnn_cell_impl fused_rnn_cell gru_ops lstm_ops rnn rnn_cell"),
    ("saved_model", "python.saved_model", "keras_saved_model reader signature_def_utils utils"),
    ("seq2seq", "python.ops", "attention_decoder_fn attention_wrapper basic_decoder beam_search_decoder "
     "beam_search_ops decoder decoder_fn helper loss sampler seq2seq"),
    ("sparsemax", "python.ops", "sparsemax sparsemax_loss"),
    ("summary", "", "summary summary_ops"),
    ("timeseries", "python.timeseries", "ar_model estimators feature_keys head input_pipeline model "
     "saved_model_utils state_management"),
    ("training", "python.training", "bucket_ops device_setter evaluation failure_tolerator feeder feeding_queue_runner "
     "hparam resample sampling_ops sequence_queueing_state_saver tensor_queue_dataset training tuner"),
)


# Modules that TF-Slim has, with names for themselves.
_SLIM = {"layers": "initializers layers normalization optimizers regularizers rev_block_lib summaries utils",
         "losses": "loss_ops", "training": "evaluation training"}


def _sources(package: str, folder: str, module: str) -> list[str]:
    """Returns where the names of a module are looked up, the first that is there."""
    inner = [part for part in folder.split(".") if part not in ("", "python", package)]
    # These two have public modules of the same names, such as tf.contrib.learn.datasets.
    places = ([*inner, module], inner) if package in ("learn", "losses") else ()
    sources = [".".join(("tf.contrib", package, *filter(None, place))) for place in (*places, [])]
    if inner == ["learn_io"]:
        sources.insert(0, "tf.contrib.learn.io")
    if module in _SLIM.get(package, "").split():
        sources.append(f"tf_slim.{package}.{module}")
    return sources


def inner_modules(known: Container[str]) -> dict[str, tuple[str, ...]]:
    """Returns module inside a module of tf.contrib -> the modules in which its names are looked up.

    Args:
      known: the modules in tf.contrib that there are.
    """
    modules = {}
    for package, folder, names in _FOLDERS:
        full = f"tf.contrib.{package}"
        for part in filter(None, folder.split(".")):
            full = f"{full}.{part}"
            modules[full] = _sources(package, full.removeprefix(f"tf.contrib.{package}."), "")
        for name in names.split():
            modules[f"{full}.{name}"] = _sources(package, folder, name)
    return {module: tuple(source for source in dict.fromkeys(sources)
                          if source in known or source.startswith("tf_slim."))
            for module, sources in modules.items()}
