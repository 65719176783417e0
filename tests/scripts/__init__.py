"""TensorFlow 1 scripts of several kinds, written as they were for TensorFlow 1. Tests run them with `ps_train run`."""
