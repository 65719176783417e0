"""What sending costs: many small variables, one large dense variable, and the bytes on the wire.

    small   200 variables of 64 floats, Adam: batches per second
    large   one variable of 32 MiB, gradient descent: batches per second, each of which sends it in both directions
    wire    the MLP through a counting proxy: bytes per batch (its speed is the proxy's, not the peer's)
"""

from __future__ import annotations

import sys

from benchmarks.harness import catalogue, tool
from benchmarks.harness.catalogue import ASYNC, AT_ONCE, CLASSIC, K5, K20, K20_BFLOAT16, PEERS
from benchmarks.harness.report import Ratio
from benchmarks.harness.tool import Trial
from benchmarks.harness.wires import Link

SMALL, LARGE, WIRE = "small", "large", "wire"
_ASYNC_BFLOAT16 = f"{ASYNC} bfloat16"
_WHO = {
    SMALL: (CLASSIC, ASYNC, AT_ONCE, catalogue.SYNC, K20),
    LARGE: (CLASSIC, ASYNC, _ASYNC_BFLOAT16),
    WIRE: (CLASSIC, ASYNC, _ASYNC_BFLOAT16, catalogue.SYNC, K5, K20, K20_BFLOAT16),
}
RATIOS = (
    Ratio(f"{SMALL}: {ASYNC}", f"{SMALL}: {CLASSIC}", "batches_per_sec", ">=", 8),
    Ratio(f"{SMALL}: {AT_ONCE}", f"{SMALL}: {CLASSIC}", "batches_per_sec", ">=", 8),
    Ratio(f"{LARGE}: {ASYNC}", f"{LARGE}: {CLASSIC}", "batches_per_sec", ">=", 1),
    Ratio(f"{WIRE}: {K20}", f"{WIRE}: {CLASSIC}", "bytes_per_step", "<=", 1 / 15),
    Ratio(f"{WIRE}: {K20_BFLOAT16}", f"{WIRE}: {K20}", "bytes_per_step", "<=", 0.55),
    Ratio(f"{WIRE}: {_ASYNC_BFLOAT16}", f"{WIRE}: {ASYNC}", "bytes_per_step", "<=", 0.55),
)


def main() -> int:
    """Runs the tool."""
    parser = tool.parser(__doc__, "transfers")
    parser.set_defaults(batches=300)  # nothing is learned here
    arguments = parser.parse_args()
    settings = {
        SMALL: tool.setting(arguments, has_accuracy=False, model="benchmarks.small_variables"),
        LARGE: tool.setting(arguments, has_accuracy=False, model="benchmarks.large_dense", optimizer="sgd"),
        WIRE: tool.setting(arguments, has_accuracy=False, link=Link()),
    }
    trials = [Trial(f"{what}: {name}", PEERS[name], settings[what]) for what, names in _WHO.items() for name in names]
    return tool.main(arguments, "What sending costs", trials, RATIOS, "transfers")


if __name__ == "__main__":
    sys.exit(main())
