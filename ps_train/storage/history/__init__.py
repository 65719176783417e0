"""What has a train_dir seen: where its training runs, how to continue it, and what happened to it?

    run_record  cluster.json and launch.json: the cluster, and the commands
    journal     journal.jsonl: who joined, died and was restored, and when
"""
