"""Reference models: plug-ins for `--model`, each a module with a model_fn.

    softmax  one layer             mlp  784 - hidden_units - 10             cnn  two convolutions, two dense layers

On clicks, with features {"numbers": float32 [batch, numbers], "ids": int64 [batch, fields]}, or ids alone:

    logistic_regression     wide_deep     deepfm     dlrm          parts: click_model, click_metrics

`keras_mlp` and `keras_cnn` are similar networks for `ps_train keras`, each a module with a build_model.
`keras_step` has a custom training step.
"""
