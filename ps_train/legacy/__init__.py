"""How does unchanged TensorFlow 1 code run?

- `names/`: what `import tensorflow as tf` finds: TF1's names, on today's TensorFlow.

Only `ps_train run` imports this folder. The core neither needs nor knows it.
"""
