"""Writes customers: some leave, the more probably the more they pay, and the shorter they stay and are bound."""

import csv
import os

import numpy as np

CONTRACTS = {"monthly": 1.0, "yearly": -0.5, "two years": -1.5}
REGIONS = {"north": 0.0, "south": 0.3, "east": -0.3, "west": 0.0}


def draw(count, rng):
    """Returns rows (months, calls, charge, contract, region, left), and for each the logit of leaving."""
    months, calls = rng.integers(1, 73, count), rng.poisson(1.5, count)
    charge = np.round(rng.uniform(20, 120, count), 2)
    contracts, regions = rng.choice(list(CONTRACTS), count), rng.choice(list(REGIONS), count)
    logits = 0.04 * (charge - 70) - 0.04 * (months - 36) + 0.4 * (calls - 1.5) - 0.7
    logits += [CONTRACTS[contract] + REGIONS[region] for contract, region in zip(contracts, regions)]
    left = (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(int)
    return list(zip(months, calls, charge, contracts, regions, left)), logits


def main():
    """Writes the files."""
    os.makedirs("customers", exist_ok=True)
    rng = np.random.default_rng(0)
    header = ["months", "calls", "charge", "contract", "region", "left"]
    for name, count in (("train-0", 10000), ("train-1", 10000), ("eval", 4000), ("new", 20)):
        num_columns = len(header) - (name == "new")  # nobody knows yet whether new customers leave
        with open(f"customers/{name}.csv", "w", newline="", encoding="utf-8") as file:
            rows, _ = draw(count, rng)
            csv.writer(file).writerows(row[:num_columns] for row in [header, *rows])


if __name__ == "__main__":
    main()
