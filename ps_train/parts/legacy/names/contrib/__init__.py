"""What is `tf.contrib` today, as far as an honest stand-in exists?

`layer_names.py` and `names.py` are the tables, `advice.py` says what to use in place of the rest. The other files are
stand-ins that the tables name: functions whose arguments changed, and the few classes that no package has any more.
`learn/` is contrib.learn, over the Estimator.
"""
