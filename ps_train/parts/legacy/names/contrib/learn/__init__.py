"""tf.contrib.learn over the Estimator, which was made of it: needs the extra `estimator`.

`names.py` is the table. `estimators.py` adds `fit` to the Estimators, `experiment.py` runs an Experiment by
`tf.estimator.train_and_evaluate`, `run_config.py` reads a TF_CONFIG without a chief, and `inputs.py`, `metrics.py` and
`exports.py` are what surrounds them. `datasets.py` needs no Estimator.
"""
