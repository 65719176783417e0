"""A warm start: a training in a new folder begins with the variables of another one."""

import ps_train

if __name__ == "__main__":
    first = ps_train.Training("base", "base", train_dir="runs/first", num_ps=1, num_workers=1, train_steps=100)
    checkpoint = first.launch().wait().checkpoint
    training = ps_train.Training("base", "base", train_dir="runs/warm_start", num_ps=1, num_workers=1, train_steps=1,
                                 init_checkpoint=checkpoint)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
