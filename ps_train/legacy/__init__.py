"""Legacy: how does code written for TensorFlow 1 run as it is?

    estimator/   tf.estimator on TensorFlow 2.16 and later

Nothing in the core imports this folder.
"""
