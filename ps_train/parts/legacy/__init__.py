"""How does unchanged TensorFlow 1 code run? `ps_train run script.py`.

    names/ --> what `import tensorflow as tf` finds        estimator --> tf.estimator
    classic/ --> Server, Supervisor, MonitoredTrainingSession, SyncReplicasOptimizer

Start with `run.py`.

    run         runs a script as one task, from the mode of TensorFlow to the exit code
    verb        the verbs; runs all tasks of a script, on this machine or on others
    source      looks into a script before it runs; looped_flags finds flags that are defined in a loop,
                old_checkpoints the files that only the Keras before 3 writes
    conversion  paths that are written into a script, and code of Python 2; leftovers of it are leftovers.py's, which
                asks scopes.py where a name belongs, python2_library has the modules, python2_numbers `round` and
                `hash`, keyword_names `async` and `await`, chained_pandas the columns that pandas 3 leaves as they are,
                pandas_advice and numpy_advice say what else differs, one_number has numpy's arrays of one, slice_lists
                its lists of slices
    old_protos  modules that an older protoc has generated; late_globals, `global` behind a use of the name;
                implicit_imports, what a package of Python 2 imported from its own folder; proto_strings, text in
                protocol buffers; ended_generators, StopIteration that leaves a generator;
                type_checks, `type(x) is tf.Tensor`; encoded_text, what `encode` returns; python2_bytes, what
                sockets and the like give; session_strings, text that sessions return; division, python2_order,
                python2_calls and leaked_names, what Python 2 did there; path_mapping, --map_path;
                autograph_rules keeps AutoGraph from code of Python 2
    mode_advice what to do about an error of a script that runs in the other mode of TensorFlow
    own_files   which files are the user's own, not those of packages
    unpacking   into how many values a caller takes apart what a function returns
    children    the processes that a script starts, by a command or by `multiprocessing`
    estimator   tf.estimator on TensorFlow 2.16 and later, with other servers, sessions and evaluator, which learns from
                observer when training is over; strategies trains it under tf.distribute, and strategy_ends says there
                that training is over
    names/      TensorFlow 1's names, on today's TensorFlow
    classic/    TensorFlow 1's classes, with a clean end, named waits, and recovery
    horovod/    Horovod's names, for scripts that know of no cluster
    deeprec/    DeepRec's embedding variables, as tables on the ps

Documentation: docs/migrate.md, docs/migrate_horovod.md, docs/migrate_deeprec.md, docs/compatibility.md,
docs/decisions/scripts.md.
Tests: tests/*/parts/legacy/.
"""
