"""Advice for names without a stand-in: what to use instead."""

from __future__ import annotations

_TREES = "use TensorFlow Decision Forests: pip install tensorflow-decision-forests; its models are no graph code"
_COPY = "copy the function of TensorFlow 1.15 into your project"

# Names without a stand-in, or their modules -> what to use instead.
ADVICE = {
    # DeepRec and PAI-TF
    "tf.feature_column.categorical_column_with_adaptive_embedding":
        "a name of DeepRec; use categorical_column_with_embedding, in which each id has a row",
    "tf.feature_column.multi_hash_embedding_column":
        "a name of DeepRec; use embedding_column of categorical_column_with_embedding, in which each id has a row",
    "tf.get_multihash_variable": "a name of DeepRec; use tf.get_embedding_variable, in which each id has a row",
    "tf.get_dynamic_dimension_embedding_variable": "a name of DeepRec; use tf.get_embedding_variable",
    "tf.estimator": "install the Estimator: pip install 'ps_train[estimator]'",
    **{f"tf.estimator.BoostedTrees{kind}": _TREES for kind in ("Classifier", "Regressor", "Estimator")},
    "tf.models": "put the module, from the examples of TensorFlow 0.x, beside your script",
    "tf.examples": "use tensorflow_datasets, or a reader of your own; the tutorials' MNIST is there",
    "tf.contrib": "TensorFlow 2 has no tf.contrib, and ps_train no stand-in for this name; docs/compatibility.md has "
                  "those that it has",
    "tf.contrib.bayesflow": "use TensorFlow Probability: pip install tensorflow-probability",
    "tf.contrib.boosted_trees": _TREES,
    "tf.contrib.copy_graph": "use tf.graph_util.extract_sub_graph and tf.import_graph_def",
    "tf.contrib.cudnn_rnn": "use CudnnLSTM, CudnnGRU, CudnnRNNTanh or CudnnRNNRelu, as in TensorFlow 1.3 to 1.15",
    "tf.contrib.data": "most of it is in tf.data and tf.data.experimental",
    "tf.contrib.distributions": "install TensorFlow Probability, which has most of these names: pip install "
                                "tensorflow-probability",
    "tf.contrib.eager": "use tf.keras.Model and tf.train.Checkpoint; a script that runs eagerly uses no ps",
    "tf.contrib.factorization": "there are WALSModel, WALSMatrixFactorization, KMeans and KMeansClustering",
    **{f"tf.contrib.factorization.{name}": "use GaussianMixture of scikit-learn, or a mixture of TensorFlow Probability"
       for name in ("GMM", "GmmAlgorithm", "gmm")},
    **{f"tf.contrib.estimator.{name}": "use tf.nn.dynamic_rnn and a head of tf.contrib.estimator in a model_fn"
       for name in ("RNNClassifier", "RNNEstimator")},
    "tf.contrib.estimator.SavedModelEstimator": "load the SavedModel by tf.saved_model.loader in a model_fn",
    "tf.contrib.integrate": "use TensorFlow Probability's tfp.math.ode, or scipy.integrate in a tf.py_func",
    "tf.contrib.ffmpeg": "use tf.audio.decode_wav",
    "tf.contrib.gan": "install TF-GAN, which has most of these names: pip install tensorflow-gan",
    "tf.contrib.graph_editor": "there are views, walks, reroutes and copies; in place of a Transformer, use copy and "
                               "reroute_ts",
    "tf.contrib.image": "use TensorFlow Addons' code for it; rotations, translations, transforms and dense_image_warp "
                        "are there",
    "tf.contrib.layers": "use tf.layers, tf.feature_column or tf_slim",
    "tf.contrib.learn.SVM": "use LinearEstimator with binary_svm_head(), which trains by gradients",
    "tf.contrib.learn.evaluate": "use an Estimator, or tf.train.MonitoredSession",
    "tf.contrib.learn.train": "use an Estimator, or tf.train.MonitoredTrainingSession",
    "tf.contrib.learn.DynamicRnnEstimator": "use tf.nn.dynamic_rnn in the model_fn of an Estimator",
    "tf.contrib.layers.multi_class_target": "use tf.contrib.learn.multi_class_head",
    "tf.contrib.layers.regression_target": "use tf.contrib.learn.regression_head",
    "tf.contrib.learn.learn_runner.tune": "run the experiment once for each trial",
    "tf.contrib.linear_optimizer": "use tf.train.FtrlOptimizer",
    "tf.contrib.memory_stats": "use the memory of the step's RunMetadata",
    "tf.contrib.metrics": "use tf.metrics, whose functions take labels before predictions",
    "tf.contrib.nccl": "use tf.distribute.MirroredStrategy, which adds gradients with NCCL",
    "tf.contrib.predictor": "there are from_saved_model, from_estimator and from_contrib_estimator",
    "tf.contrib.quantize": "use the TensorFlow Model Optimization Toolkit: pip install tensorflow-model-optimization",
    "tf.contrib.rnn": "use a cell of tf.nn.rnn_cell, or copy this one of TensorFlow 1.15 into your project",
    "tf.contrib.saved_model": "use tf.saved_model; save_keras_model and load_keras_model are there",
    "tf.contrib.seq2seq": _COPY + ", or use tf.nn.dynamic_rnn",
    "tf.contrib.session_bundle": "use tf.saved_model",
    "tf.contrib.slim": "tf_slim has no such name",
    "tf.contrib.solvers": "use tf.linalg",
    "tf.contrib.summary": "use tf.summary",
    "tf.contrib.tensor_forest": _TREES,
    "tf.contrib.tensorrt": "use tf.experimental.tensorrt",
    "tf.contrib.timeseries": "there are ARRegressor, SequentialTimeSeriesModel, readers and windows; for another model "
                             "use one of these, or a state space model of TensorFlow Probability",
    "tf.contrib.tfprof": "use tf.profiler.profile",
    "tf.contrib.verbs": "use protocol='grpc'",
    "tf.contrib.gdr": "use protocol='grpc'",
    "tf.contrib.mpi": "use protocol='grpc'",
    "tf.contrib.learn": "use tf.estimator",
    "tf.contrib.learn.datasets": "use tensorflow_datasets or tf.keras.datasets",
}
