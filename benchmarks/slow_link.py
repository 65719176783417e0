"""A slow network: between each worker and the ps 100 Mbit/s and 10 ms, in each direction, by a proxy.

The all-reduce peers are not in it: what passes between their workers does not go through an address that could be a
proxy's.
"""

from __future__ import annotations

import sys

from benchmarks.harness import tool
from benchmarks.harness.catalogue import ASYNC, AT_ONCE, CLASSIC, K5, K20, K20_BFLOAT16, PEERS
from benchmarks.harness.report import Ratio
from benchmarks.harness.tool import Trial
from benchmarks.harness.wires import Link

LINK = Link(bytes_per_sec=100e6 / 8, delay_secs=0.010)
RATIOS = (
    Ratio(K20, CLASSIC, "secs_to_97", "<=", 1 / 10),
    Ratio(K20_BFLOAT16, CLASSIC, "secs_to_97", "<=", 1 / 10),
)


def main() -> int:
    """Runs the tool."""
    parser = tool.parser(__doc__, "slow_link")
    parser.set_defaults(batches=3000, max_secs=180.0)
    arguments = parser.parse_args()
    setting = tool.setting(arguments, link=LINK)
    names = (CLASSIC, ASYNC, AT_ONCE, f"{ASYNC} bfloat16", K5, K20, K20_BFLOAT16)
    trials = [Trial(name, PEERS[name], setting) for name in names]
    return tool.main(arguments, "100 Mbit/s and 10 ms between each worker and the ps", trials, RATIOS, "slow_link")


if __name__ == "__main__":
    sys.exit(main())
