"""PyTorch on a recommender model: one process, `EmbeddingBag(sparse=True)`, `torch.optim.Adagrad`."""

from __future__ import annotations

import argparse

from benchmarks.harness import options
from benchmarks.recommender import examples
from benchmarks.recommender.examples import NUM_FIELDS, NUM_NUMBERS
from benchmarks.recommender.work import Work

try:
    import torch
except ImportError as error:
    options.leave(error)


def main() -> None:
    """Trains until the recording is complete."""
    arguments = _parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    model = _DeepFm(Work.parse(arguments.params))
    optimizer = torch.optim.Adagrad(model.parameters(), arguments.learning_rate, initial_accumulator_value=0.1)
    loss_of = torch.nn.BCEWithLogitsLoss()
    batches = [list(map(torch.from_numpy, map(_copy, batch)))
               for batch in zip(*examples.batches(arguments.data_dir, arguments.batch_size))]
    recorder = options.recorder(arguments)
    steps, is_over = 0, False
    while not is_over:
        ids, numbers, labels = batches[steps % len(batches)]
        optimizer.zero_grad()
        loss_of(model(ids, numbers), labels).backward()
        optimizer.step()
        steps += 1
        is_over = recorder.note(steps, dict)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--params", required=True)
    parser.add_argument("--threads", type=int, default=0, help="0 for PyTorch's default, all cores")
    return parser.parse_args()


def _copy(array):
    return array.copy()  # PyTorch warns of memory that it must not write to


class _DeepFm(torch.nn.Module):
    """The network of `network.py`."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self._dim = work.dim
        self.rows = torch.nn.EmbeddingBag(work.num_ids, work.width, mode="sum", sparse=True)
        torch.nn.init.uniform_(self.rows.weight, -0.01, 0.01)
        units = [NUM_FIELDS * work.dim + NUM_NUMBERS, *map(int, work.layers.split("x"))]
        layers = [torch.nn.Sequential(torch.nn.Linear(*pair), torch.nn.ReLU()) for pair in zip(units, units[1:])]
        self.deep = torch.nn.Sequential(*layers, torch.nn.Linear(units[-1], 1))
        self.linear = torch.nn.Linear(NUM_NUMBERS, 1)

    def forward(self, ids, numbers):
        """Returns the logits float32 [batch] of ids int64 [batch, 26] and numbers float32 [batch, 13]."""
        rows = self.rows(ids.reshape(-1, 1)).reshape(*ids.shape, -1)  # a bag for each id: pairs need each vector
        weights, vectors = rows[:, :, 0], rows[:, :, 1:]
        pairs = 0.5 * (vectors.sum(1).square().sum(1) - vectors.square().sum((1, 2)))
        hidden = torch.cat([vectors.reshape(len(ids), -1), numbers], 1)
        return (self.deep(hidden) + self.linear(numbers))[:, 0] + pairs + weights.sum(1)


if __name__ == "__main__":
    main()
