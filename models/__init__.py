"""Reference models: plug-ins for `--model`, each a module with a model_fn.

    softmax  one layer             mlp  784 - hidden_units - 10             cnn  two convolutions, two dense layers
"""
