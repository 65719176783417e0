"""Local steps: a worker takes 8 steps on its own between two exchanges with the parameter servers."""

import ps_train

if __name__ == "__main__":
    training = ps_train.Training("base", "base", train_dir="runs/local_steps", num_ps=1, num_workers=2, train_steps=200,
                                 communication_period=8)
    result = training.launch().wait()
    print(f"step {result.step}, accuracy {result.metrics['accuracy']:.2f}: {result.why}")
