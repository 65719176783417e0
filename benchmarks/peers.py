"""The peers side by side: the same training, in turn and repeated.

784-100-10 on MNIST, 100 examples in a mini-batch of each worker, Adam, two workers, and one ps where there is one.
"""

from __future__ import annotations

import sys

from benchmarks.harness import catalogue, tool
from benchmarks.harness.catalogue import ASYNC, AT_ONCE, CLASSIC, DDP, K20, K20_BFLOAT16, LIMIT, LIMIT_1_THREAD
from benchmarks.harness.report import Ratio
from benchmarks.harness.tool import Trial

RATIOS = (
    Ratio(K20, CLASSIC, "batches_per_sec", ">=", 5),
    Ratio(K20, CLASSIC, "secs_to_97", "<=", 1 / 4),
    Ratio(K20, DDP, "batches_per_sec", ">=", 3),
    Ratio(K20, DDP, "secs_to_97", "<=", 1 / 2),
    Ratio(K20, LIMIT, "batches_per_sec", ">=", 0.85),
    Ratio(K20, LIMIT_1_THREAD, "batches_per_sec", ">=", 0.85),
    Ratio(ASYNC, CLASSIC, "batches_per_sec", ">=", 1.3),
    Ratio(AT_ONCE, CLASSIC, "batches_per_sec", ">=", 1.3),
    Ratio(K20, CLASSIC, "bytes_per_step", "<=", 1 / 15),
    Ratio(K20_BFLOAT16, K20, "bytes_per_step", "<=", 0.55),
)


def main() -> int:
    """Runs the tool."""
    arguments = tool.parser(__doc__, "peers").parse_args()
    setting = tool.setting(arguments)
    trials = [Trial(peer.name, peer, setting) for peer in catalogue.PEERS.values()]
    return tool.main(arguments, "The peers side by side", trials, RATIOS, "peers")


if __name__ == "__main__":
    sys.exit(main())
