"""PyTorch DistributedDataParallel on gloo: every worker has a copy, gradients are averaged by all-reduce."""

from __future__ import annotations

import argparse
from datetime import timedelta

from benchmarks.harness import examples, options

try:
    import torch
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    options.leave(error)

TIMEOUT = timedelta(seconds=60)


def main() -> None:
    """Trains until the recording is complete, in worker 0; the others until they are ended."""
    arguments = _parse()
    torch.set_num_threads(1)  # two on two cores made it 4 to 5 times slower
    if arguments.seed is not None:
        torch.manual_seed(arguments.seed)
    torch.distributed.init_process_group(
        "gloo", init_method=f"tcp://{arguments.address}", rank=arguments.task_index, world_size=arguments.num_workers,
        timeout=TIMEOUT)
    model = mlp()
    step, _ = make_step(arguments, DistributedDataParallel(model))
    names = ["hidden/weights", "hidden/biases", "softmax/weights", "softmax/biases"]

    def copy_parameters() -> dict:
        return {name: value.detach().numpy().T.copy() for name, value in zip(names, model.parameters())}

    recorder = options.recorder(arguments) if arguments.task_index == 0 else None
    steps, is_over = 0, False
    while not is_over:
        step()
        steps += 1
        if recorder is not None:
            is_over = recorder.note(steps * arguments.num_workers, copy_parameters)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--address", required=True, help="host:port where worker 0 lets the others find each other")
    parser.add_argument("--num_workers", type=int, required=True)
    parser.add_argument("--task_index", type=int, required=True)
    return parser.parse_args()


def mlp() -> torch.nn.Module:
    """Returns 784 - 100 - 10, which begins as models.mlp does."""
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    for layer, stddev in ((model[0], (2 / 784) ** 0.5), (model[2], 100 ** -0.5)):
        torch.nn.init.trunc_normal_(layer.weight, std=stddev, a=-2 * stddev, b=2 * stddev)
        torch.nn.init.zeros_(layer.bias)
    return model


def make_step(arguments: argparse.Namespace, model: torch.nn.Module):
    """Returns a function that takes a step on this worker's share of the data, and the optimizer."""
    images, labels = examples.load(arguments.data_dir).train.shard(arguments.task_index, arguments.num_workers)
    images, labels = torch.from_numpy(examples.scaled(images)), torch.from_numpy(labels.astype("int64"))
    batches = examples.shuffled_rows(len(labels), arguments.batch_size, arguments.seed)
    optimizer = torch.optim.Adam(model.parameters(), arguments.learning_rate)
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> None:
        rows = torch.from_numpy(next(batches))
        optimizer.zero_grad()
        loss_of(model(images[rows]), labels[rows]).backward()
        optimizer.step()

    return step, optimizer


if __name__ == "__main__":
    main()
