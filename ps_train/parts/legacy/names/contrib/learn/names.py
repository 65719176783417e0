"""The names of tf.contrib.learn -> what they are today."""

from __future__ import annotations

_HERE = "ps_train.parts.legacy.names.contrib.learn."
_LEARN = "tf.contrib.learn"
_ESTIMATORS = ("Estimator", "DNNClassifier", "DNNRegressor", "LinearClassifier", "LinearRegressor",
               "DNNLinearCombinedClassifier", "DNNLinearCombinedRegressor")

NAMES = {
    **{f"{_LEARN}.{name}": f"{_HERE}estimators:Learn{name}" for name in _ESTIMATORS},
    f"{_LEARN}.ModeKeys": _HERE + "estimators:LearnModeKeys",
    f"{_LEARN}.ModelFnOps": _HERE + "estimators:model_fn_ops",
    f"{_LEARN}.RunConfig": _HERE + "run_config:LearnRunConfig",
    f"{_LEARN}.TaskType": "tensorflow_estimator.python.estimator.run_config:TaskType",
    f"{_LEARN}.Experiment": _HERE + "experiment:Experiment",
    f"{_LEARN}.learn_runner.run": _HERE + "experiment:run_experiment",
    f"{_LEARN}.infer_real_valued_columns_from_input": _HERE + "inputs:infer_real_valued_columns_from_input",
    f"{_LEARN}.infer_real_valued_columns_from_input_fn": _HERE + "inputs:infer_real_valued_columns_from_input_fn",
    f"{_LEARN}.io.numpy_input_fn": "tf.estimator.inputs.numpy_input_fn",
    f"{_LEARN}.io.pandas_input_fn": "tf.estimator.inputs.pandas_input_fn",
    f"{_LEARN}.make_export_strategy": _HERE + "exports:make_export_strategy",
    f"{_LEARN}.utils.make_export_strategy": _HERE + "exports:make_export_strategy",
    f"{_LEARN}.utils.saved_model_export_utils.make_export_strategy": _HERE + "exports:make_export_strategy",
    f"{_LEARN}.utils.input_fn_utils.InputFnOps": _HERE + "exports:InputFnOps",
    f"{_LEARN}.utils.input_fn_utils.build_parsing_serving_input_fn": _HERE + "exports:build_parsing_serving_input_fn",
    f"{_LEARN}.utils.input_fn_utils.build_default_serving_input_fn": _HERE + "exports:build_default_serving_input_fn",
    f"{_LEARN}.utils.InputFnOps": _HERE + "exports:InputFnOps",
    f"{_LEARN}.utils.build_parsing_serving_input_fn": _HERE + "exports:build_parsing_serving_input_fn",
    f"{_LEARN}.MetricSpec": _HERE + "metrics:MetricSpec",
    f"{_LEARN}.metric_spec.MetricSpec": _HERE + "metrics:MetricSpec",
    f"{_LEARN}.PredictionKey": _HERE + "metrics:PredictionKey",
    f"{_LEARN}.ProblemType": _HERE + "metrics:ProblemType",
    f"{_LEARN}.datasets.DATASETS": _HERE + "datasets:DATASETS",
    f"{_LEARN}.datasets.base.maybe_download": _HERE + "datasets:maybe_download",
    f"{_LEARN}.datasets.load_dataset": _HERE + "datasets:load_learn_dataset",
    f"{_LEARN}.datasets.mnist.read_data_sets": "tf.examples.tutorials.mnist.input_data.read_data_sets",
    f"{_LEARN}.datasets.mnist.load_mnist": _HERE + "datasets:load_mnist_sets",
    f"{_LEARN}.datasets.base.Dataset": _HERE + "datasets:LearnDataset",
    f"{_LEARN}.datasets.base.Datasets": _HERE + "datasets:LearnDatasets",
    f"{_LEARN}.datasets.base.load_csv_with_header": _HERE + "datasets:load_csv_with_header",
    f"{_LEARN}.datasets.base.load_csv_without_header": _HERE + "datasets:load_csv_without_header",
}

MODULES = {
    f"{_LEARN}.estimators": (_LEARN,),
    f"{_LEARN}.estimators.model_fn": (_LEARN,),
    f"{_LEARN}.estimators.run_config": (_LEARN,),
    f"{_LEARN}.estimators.estimator": (_LEARN,),
    f"{_LEARN}.estimators.dnn": (_LEARN,),
    f"{_LEARN}.estimators.linear": (_LEARN,),
    f"{_LEARN}.estimators.dnn_linear_combined": (_LEARN,),
    f"{_LEARN}.estimators.prediction_key": (_LEARN,),
    f"{_LEARN}.estimators.constants": (_LEARN,),
    f"{_LEARN}.experiment": (_LEARN,),
    f"{_LEARN}.run_config": (_LEARN,),
    f"{_LEARN}.python.learn": (_LEARN,),
}

ADVICE = {
    _LEARN: "use tf.estimator",
    f"{_LEARN}.SKCompat": "use the Estimator itself: fit takes x, y and batch_size",
    f"{_LEARN}.monitors": "use tf.train.SessionRunHook; train_and_evaluate evaluates each checkpoint",
    f"{_LEARN}.datasets": "use tensorflow_datasets or tf.keras.datasets",
}
