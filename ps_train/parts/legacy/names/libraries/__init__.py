"""What do numpy, pandas and absl no longer take that TF1 code gives them?

    numpy_calls   arguments and functions of numpy; the names alone are in `renamed.NUMPY`
    pandas_calls  columns of pandas' own types in TensorFlow, and methods that pandas has taken away
    flags_of_absl flags that absl has itself, and defaults of another type than the flag's
"""
