"""Boosts trees on abalone's columns: how many rings has a shell? Nothing here knows of tdbg.

    tdbg run --config scenario.yaml -- python train.py                      the table beside this file, which is made up
    tdbg run --config scenario.yaml -- python train.py --eta 0.05
    tdbg run --config scenario.yaml -- python train.py --train abalone.train --validation abalone.validation
                                                            your own: libsvm, or CSV whose first column is the target
"""

import argparse
import pathlib
import sys

import numpy as np
import xgboost as xgb

HERE = pathlib.Path(__file__).resolve().parent


def load(path):
    """A DMatrix of a CSV file (a header or none, the target first) or of a libsvm file."""
    path = pathlib.Path(path)
    try:
        with open(path, encoding="utf-8") as file:
            first = file.readline().strip()
        if ":" in first:
            from sklearn.datasets import load_svmlight_file
            values, target = load_svmlight_file(str(path))
            return xgb.DMatrix(values, target)
        header = any(c.isalpha() for c in first.replace("e", "").replace("E", ""))
        table = np.loadtxt(path, delimiter=",", skiprows=int(header), ndmin=2)
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: neither CSV (numbers, the target first) nor libsvm: {error}")
    names = first.split(",")[1:] if header else None
    return xgb.DMatrix(table[:, 1:], table[:, 0], feature_names=names)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", default=str(HERE / "table.csv"), help="CSV or libsvm")
    parser.add_argument("--validation", help="CSV or libsvm; default: the last fifth of --train")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--eta", type=float, default=0.2)
    options = parser.parse_args()

    data = load(options.train)
    if options.validation:
        validation = load(options.validation)
    else:
        cut = data.num_row() * 4 // 5
        data, validation = data.slice(range(cut)), data.slice(range(cut, data.num_row()))
    params = {"objective": "reg:squarederror", "max_depth": 5, "eta": options.eta, "gamma": 4, "min_child_weight": 6,
              "subsample": 0.7, "verbosity": 1, "seed": 1}
    booster = xgb.train(params, data, options.rounds, evals=[(data, "train"), (validation, "validation")],
                        verbose_eval=10)
    print("trees:", booster.num_boosted_rounds())


if __name__ == "__main__":
    main()
