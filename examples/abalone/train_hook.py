"""train.py with the hook of smdebug's users: the script itself says what is saved.

    pip install tdbg-smdebug
    python train_hook.py --out-dir runs/hook

Needs no `tdbg run`; under it the run is the launcher's, and what the hook says is saved is saved.
"""

import argparse

import xgboost as xgb
from smdebug.xgboost import Hook, SaveConfig
from train import HERE, load


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out-dir", required=True, help="the run directory")
    parser.add_argument("--save-interval", type=int, default=5)
    parser.add_argument("--train", default=str(HERE / "table.csv"), help="CSV or libsvm; the last fifth validates")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("--eta", type=float, default=0.2)
    options = parser.parse_args()

    table = load(options.train)
    cut = table.num_row() * 4 // 5
    data, validation = table.slice(range(cut)), table.slice(range(cut, table.num_row()))
    params = {"objective": "reg:squarederror", "max_depth": 5, "eta": options.eta, "gamma": 4, "min_child_weight": 6,
              "subsample": 0.7, "verbosity": 1, "seed": 1}

    hook = Hook(options.out_dir, include_collections=["metrics", "feature_importance", "average_shap"],
                save_config=SaveConfig(save_interval=options.save_interval), hyperparameters=params, train_data=data,
                validation_data=validation)
    booster = xgb.train(params, data, options.rounds, evals=[(data, "train"), (validation, "validation")],
                        verbose_eval=10, callbacks=[hook])
    print("trees:", booster.num_boosted_rounds())


if __name__ == "__main__":
    main()
