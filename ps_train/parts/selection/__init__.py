"""What follows from an evaluation: the best checkpoint is kept, training ends early, models are exported.

    evaluator, or a thread of the chief: checkpoint --> Evaluation --> Selector --> train_dir/best, export_dir
                                                                                --> "stopping" on the blackboard

Start with `selector.py`. Tests: tests/*/parts/selection/. For users: docs/inference.md.

    part         what a chief and an evaluator do, and when
    selector     decides from each evaluation: keep, export, end
    record       what it remembers, train_dir/selection.json
    evaluations  the heartbeat of an evaluator on ps 0; without it, evaluations in a thread of the chief
"""
