"""PyTorch's elastic launch: DDP under torchrun, which starts all workers from a snapshot when one is lost.

    torchrun --max-restarts=N --> benchmarks.elastic, one process per worker --> a printed line, each step
"""

from __future__ import annotations

import argparse
import os
import time

from benchmarks.harness import options

try:
    import torch
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks import ddp
except ImportError as error:
    options.leave(error)


def main() -> None:
    """Trains until it is ended."""
    arguments = _parse()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", timeout=ddp.TIMEOUT)  # torchrun says where, by the environment
    model = ddp.mlp()
    step, optimizer = ddp.make_step(arguments, DistributedDataParallel(model))
    parts = {"model": model, "optimizer": optimizer}
    count = _load(arguments.snapshot, parts)
    saved_secs = time.monotonic()
    while True:
        step()
        count += arguments.num_workers
        print(f"step {count} of all", flush=True)
        if arguments.task_index == 0 and time.monotonic() - saved_secs >= arguments.save_secs:
            _save(arguments.snapshot, parts, count)
            saved_secs = time.monotonic()
        time.sleep(arguments.pause_secs)


def _parse() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--snapshot", required=True, help="file")
    parser.add_argument("--save_secs", type=float, required=True)
    parser.add_argument("--pause_secs", type=float, default=0.0, help="after each step, which makes steps longer")
    arguments = parser.parse_args()
    arguments.task_index, arguments.num_workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return arguments


def _load(path: str, parts: dict) -> int:
    """Returns the step of the snapshot, 0 if there is none."""
    if not os.path.exists(path):
        return 0
    values = torch.load(path)
    for name, part in parts.items():
        part.load_state_dict(values[name])
    return values["count"]


def _save(path: str, parts: dict, count: int) -> None:
    torch.save({"count": count, **{name: part.state_dict() for name, part in parts.items()}}, f"{path}.new")
    os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
