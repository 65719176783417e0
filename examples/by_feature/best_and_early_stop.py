"""The best checkpoint is kept, and training ends early: when three evaluations in a row were no better."""

import ps_train

if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/best_and_early_stop", num_ps=1, num_workers=1,
                                 train_steps=100000, eval_steps=50, early_stopping="accuracy:3", learning_rate=0.5)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
