"""Optimizers: a dense and a sparse gradient, four steps each."""

from __future__ import annotations

import tensorflow as tf
from shared import floats

OPT, T, V2 = tf.contrib.opt, tf.train, tf.contrib.optimizer_v2
MIXED = tf.contrib.mixed_precision


def trained(make, is_sparse):
    def case():
        weights, bias = tf.get_variable("w", [5, 3]), tf.get_variable("b", [3])
        output = tf.nn.embedding_lookup(weights, [0, 2, 2]) if is_sparse else tf.matmul(floats(4, 5), weights) + bias
        step = T.get_or_create_global_step()
        train_op = make(step).minimize(tf.reduce_sum(tf.square(output - 0.3)), step,
                                       var_list=[weights] if is_sparse else None)
        with tf.control_dependencies([train_op]):
            return [weights.read_value(), bias.read_value(), step.read_value()], 4
    return case


KINDS = {
    "GradientDescent": lambda step: T.GradientDescentOptimizer(0.1), "Adam": lambda step: T.AdamOptimizer(0.1),
    "Adagrad": lambda step: T.AdagradOptimizer(0.1), "Adadelta": lambda step: T.AdadeltaOptimizer(0.1),
    "RMSProp": lambda step: T.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    "Ftrl": lambda step: T.FtrlOptimizer(0.1, l1_regularization_strength=0.01, l2_regularization_strength=0.1),
    "ProximalAdagrad": lambda step: T.ProximalAdagradOptimizer(0.1, l1_regularization_strength=0.01),
    "ProximalDescent": lambda step: T.ProximalGradientDescentOptimizer(0.1, l2_regularization_strength=0.01),
    "AdagradDA": lambda step: T.AdagradDAOptimizer(0.1, step),
    "Nesterov": lambda step: T.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "AdaMax": lambda step: OPT.AdaMaxOptimizer(0.1), "LazyAdam": lambda step: OPT.LazyAdamOptimizer(0.1),
    "Nadam": lambda step: OPT.NadamOptimizer(0.1), "PowerSign": lambda step: OPT.PowerSignOptimizer(0.1),
    "AddSign": lambda step: OPT.AddSignOptimizer(0.1), "LARS": lambda step: OPT.LARSOptimizer(0.1, momentum=0.9),
    "MovingAverage": lambda step: OPT.MovingAverageOptimizer(T.AdamOptimizer(0.1), 0.9),
    "Multitask": lambda step: OPT.MultitaskOptimizerWrapper(T.MomentumOptimizer(0.1, 0.9)),
    "VariableClipping": lambda step: OPT.VariableClippingOptimizer(T.GradientDescentOptimizer(0.1), {}, 1.0),
    "v2_Adam": lambda step: V2.AdamOptimizer(0.1), "v2_Adagrad": lambda step: V2.AdagradOptimizer(0.1),
    "v2_Adadelta": lambda step: V2.AdadeltaOptimizer(0.1), "v2_RMSProp": lambda step: V2.RMSPropOptimizer(0.1),
    "v2_Momentum": lambda step: V2.MomentumOptimizer(0.1, 0.9),
    "FixedLossScale": lambda step: MIXED.LossScaleOptimizer(
        T.GradientDescentOptimizer(0.1), MIXED.FixedLossScaleManager(8.0)),
    "LossScale": lambda step: MIXED.LossScaleOptimizer(
        T.GradientDescentOptimizer(0.1), MIXED.ExponentialUpdateLossScaleManager(8.0, 2)),
    **{f"rate_{name}": lambda step, rate=rate: T.GradientDescentOptimizer(rate(step)) for name, rate in {
        "exponential": lambda step: T.exponential_decay(0.1, step, 2, 0.5, staircase=True),
        "polynomial": lambda step: T.polynomial_decay(0.1, step, 5, power=2.0),
        "piecewise": lambda step: T.piecewise_constant(step, [1, 2], [0.1, 0.05, 0.01]),
        "cosine": lambda step: T.cosine_decay_restarts(0.1, step, 2),
        "linear_cosine": lambda step: T.linear_cosine_decay(0.1, step, 5),
        "inverse_time": lambda step: T.inverse_time_decay(0.1, step, 2, 0.5),
        "natural": lambda step: T.natural_exp_decay(0.1, step, 2, 0.5)}.items()},
}
CASES = {name + suffix: trained(make, is_sparse) for name, make in KINDS.items()
         for suffix, is_sparse in (("", False), ("_rows", True))}
