"""What SageMaker's XGBoost image does without a script, as one: channels of CSV (the target first), hyperparameters as
they are named there.

    SM_CHANNEL_TRAIN=data/train SM_CHANNEL_VALIDATION=data/validation python abalone.py --num_round 51 --eta 0.2
"""

import os
import pathlib
import sys

import numpy as np
import xgboost as xgb

CHANNELS = {"train": os.environ["SM_CHANNEL_TRAIN"], "validation": os.environ.get("SM_CHANNEL_VALIDATION", "")}


def load(folder):
    """All CSV files of a channel. Names of columns where they have a header."""
    tables, names = [], None
    for path in sorted(pathlib.Path(folder).glob("*.csv")):
        first = path.read_text().split("\n", 1)[0].split(",")
        header = not first[0].replace(".", "").isdigit()
        names = first[1:] if header else None
        tables.append(np.loadtxt(path, delimiter=",", skiprows=int(header), ndmin=2))
    if not tables:
        sys.exit(f"{folder}: no CSV file")
    table = np.concatenate(tables)
    return xgb.DMatrix(table[:, 1:], table[:, 0], feature_names=names)


def main():
    words = sys.argv[1:]
    given = {key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)}
    rounds = int(given.pop("num_round"))
    if "silent" in given:  # gone from today's XGBoost
        given["verbosity"] = str(1 - int(given.pop("silent")))
    watched = [(load(folder), name) for name, folder in CHANNELS.items() if folder]
    booster = xgb.train({"seed": 1, **given}, watched[0][0], rounds, evals=watched, verbose_eval=10)
    print("trees:", booster.num_boosted_rounds())


if __name__ == "__main__":
    main()
