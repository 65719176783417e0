"""Synchronous updates: each is the mean of the gradients of both workers."""

import ps_train

if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/sync", num_ps=1, num_workers=2, train_steps=100,
                                 sync_replicas=True)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
