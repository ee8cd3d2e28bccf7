"""Writes table.csv: a made-up table in the shape of the abalone data set (its columns, its ranges, no row of it).

    python make_table.py [--rows 2000] > table.csv
"""

import argparse
import sys

import numpy as np

COLUMNS = ("rings", "sex", "length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight",
           "shell_weight")


def rows(count, seed=0):
    """(count, 9): an animal grows towards its length, weighs as the cube of it, and what a year adds shrinks."""
    rng = np.random.default_rng(seed)
    rings = np.clip(np.round(rng.gamma(9.0, 1.1, count)), 1, 29)
    sex = np.where(rings < 8, 3, rng.integers(1, 3, count))         # 3: too young to tell
    length = np.clip(0.68 * (1 - np.exp(-0.22 * (rings + rng.normal(0, 1.6, count)))), 0.08, 0.8)
    diameter = length * rng.normal(0.80, 0.02, count)
    height = length * rng.normal(0.27, 0.03, count)
    whole = 6.9 * length ** 2.9 * rng.normal(1, 0.08, count)
    shucked = whole * rng.normal(0.44, 0.04, count)
    viscera = whole * rng.normal(0.22, 0.02, count)
    shell = whole * (0.24 + 0.005 * rings) * rng.normal(1, 0.07, count)
    return np.column_stack([rings, sex, length, diameter, height, whole, shucked, viscera, shell])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2000)
    print(",".join(COLUMNS))
    np.savetxt(sys.stdout, rows(parser.parse_args().rows), fmt=["%d", "%d"] + ["%.4f"] * 7, delimiter=",")


if __name__ == "__main__":
    main()
