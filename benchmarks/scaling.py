"""How the speed grows with workers and with parameter servers: by default 1, 2 and 4 workers with 1 and 2 ps.

Each worker is a process of this machine, so on fewer cores than tasks they take from each other.
"""

from __future__ import annotations

import sys

from benchmarks.harness import tool
from benchmarks.harness.catalogue import ASYNC, AT_ONCE, CLASSIC, K20, LIMIT, PEERS, SYNC
from benchmarks.harness.tool import Trial


def main() -> int:
    """Runs the tool."""
    parser = tool.parser(__doc__, "scaling")
    parser.set_defaults(batches=1)  # only speed is asked for: --min_secs decides
    parser.add_argument("--workers", default="1,2,4", help="numbers of workers")
    parser.add_argument("--ps", default="1,2", help="numbers of ps")
    arguments = parser.parse_args()
    workers, ps = ([int(text) for text in counts.split(",")] for counts in (arguments.workers, arguments.ps))
    trials = []
    for name in (CLASSIC, ASYNC, AT_ONCE, SYNC, K20, LIMIT):
        for num_ps in (0,) if name == LIMIT else ps:
            for num_workers in workers:
                setting = tool.setting(arguments, has_accuracy=False, num_ps=num_ps, num_workers=num_workers)
                trials.append(Trial(f"{name}: {num_workers} workers, {num_ps} ps", PEERS[name], setting))
    return tool.main(arguments, "Workers and parameter servers", trials, (), "scaling")


if __name__ == "__main__":
    sys.exit(main())
