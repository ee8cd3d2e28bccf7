"""The training of train.py by LightGBM. Nothing here knows of tdbg.

    tdbg run --config scenario.yaml -- python train_lightgbm.py [--eta 0.05]
"""

import argparse
import pathlib

import lightgbm as lgb
import numpy as np

TABLE = pathlib.Path(__file__).resolve().parent / "table.csv"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--eta", type=float, default=0.2)
    options = parser.parse_args()
    with open(TABLE, encoding="utf-8") as file:
        names = file.readline().strip().split(",")[1:]
        table = np.loadtxt(file, delimiter=",")
    cut = len(table) * 4 // 5
    data = lgb.Dataset(table[:cut, 1:], table[:cut, 0], feature_name=names)
    validation = lgb.Dataset(table[cut:, 1:], table[cut:, 0], reference=data)
    params = {"objective": "regression", "metric": "rmse", "max_depth": 5, "learning_rate": options.eta, "seed": 1,
              "verbose": -1}
    booster = lgb.train(params, data, options.rounds, valid_sets=[data, validation], valid_names=["train", "validation"],
                        callbacks=[lgb.log_evaluation(10)])
    print("trees:", booster.num_trees())


if __name__ == "__main__":
    main()
