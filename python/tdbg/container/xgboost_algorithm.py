"""What SageMaker's XGBoost image does where it is given no script: hyperparameters and channels say what is trained.

    python xgboost_algorithm.py DIRECTORY       DIRECTORY: /opt/ml, or what stands for it

Started by ``tdbg serve`` (src/service/container.h), by path, with the Python that stands for the image: it imports
XGBoost, and nothing of tdbg. What its user got wrong is in ``output/failure``, and begins with ClientError.
"""

from __future__ import annotations

import csv
import difflib
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import xgboost as xgb

CHECKPOINT = "xgboost-checkpoint"
KEPT_CHECKPOINTS = 5
MODEL = "xgboost-model"
_CSV = ("csv", "text/csv")
_LIBSVM = ("libsvm", "text/libsvm", "text/x-libsvm", "x-libsvm")

#: Ours, and not the booster's.
_OF_THE_IMAGE = (
    "num_round", "csv_weights", "early_stopping_rounds", "save_model_on_termination", "_tuning_objective_metric")
#: Once the image's or XGBoost's, and without an effect on today's.
_GONE = ("deterministic_histogram", "dsplit", "prob_buffer_row", "single_precision_histogram", "sketch_eps",
         "use_dask_gpu_training")
#: What XGBoost's page of parameters lists for training, old names included.
_OF_THE_BOOSTER = (
    "aft_loss_distribution", "aft_loss_distribution_scale", "alpha", "base_score", "booster", "colsample_bylevel",
    "colsample_bynode", "colsample_bytree", "device", "disable_default_eval_metric", "eta", "eval_metric",
    "feature_selector", "gamma", "gpu_id", "grow_policy", "huber_slope", "interaction_constraints", "lambda",
    "lambda_bias", "lambdarank_num_pair_per_sample", "lambdarank_pair_method", "learning_rate", "max_bin",
    "max_cat_threshold", "max_cat_to_onehot", "max_delta_step", "max_depth", "max_leaves", "min_child_weight",
    "min_split_loss", "monotone_constraints", "multi_strategy", "normalize_type", "nthread", "num_class",
    "num_parallel_tree", "objective", "one_drop", "predictor", "process_type", "quantile_alpha", "rate_drop",
    "refresh_leaf", "reg_alpha", "reg_lambda", "sample_type", "sampling_method", "scale_pos_weight", "seed",
    "seed_per_iteration", "silent", "skip_drop", "subsample", "top_k", "tree_method", "tweedie_variance_power",
    "updater", "verbosity")
#: name -> (least, most), None: no bound. What XGBoost itself would find out only after the data have been read.
_RANGES: dict[str, tuple[float | None, float | None]] = {
    "num_round": (1, None), "early_stopping_rounds": (1, None), "max_depth": (0, None), "eta": (0, 1),
    "gamma": (0, None), "min_child_weight": (0, None), "subsample": (0, 1), "colsample_bytree": (0, 1),
    "colsample_bylevel": (0, 1), "colsample_bynode": (0, 1), "num_class": (2, None), "csv_weights": (0, 1),
    "verbosity": (0, 3)}
_WHOLE = ("num_round", "early_stopping_rounds", "max_depth", "num_class", "csv_weights", "verbosity")


class ClientError(Exception):
    """A request that cannot be trained: the message is for who made it."""


def decoded(given: dict[str, str]) -> dict[str, str]:
    """Hyperparameters as text: estimators send some as JSON, `"\\"hist\\""`, and plain clients as they are."""
    plain = {}
    for name, value in given.items():
        if name.startswith("sagemaker_"):
            continue
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        plain[name] = read if isinstance(read, str) else value
    return plain


def check(parameters: dict[str, str]) -> None:
    """Raise ClientError for the first hyperparameter that is none, or has a value that it cannot have."""
    known = sorted({*_OF_THE_IMAGE, *_GONE, *_OF_THE_BOOSTER})
    for name, value in parameters.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise ClientError(f"hyperparameter {name}: XGBoost has none of this name{meant}")
        least, most = _RANGES.get(name, (None, None))
        if (least, most) == (None, None):
            continue
        try:
            number = int(value) if name in _WHOLE else float(value)
        except ValueError:
            number = None
        if number is None or (least is not None and not number >= least) or (most is not None and not number <= most):
            what = "a whole number" if name in _WHOLE else "a number"
            bounds = f"from {least} to {most}" if most is not None else f"of {least} or more"
            raise ClientError(f"hyperparameter {name}: found {value!r}, expected {what} {bounds}")
    if "num_round" not in parameters:
        raise ClientError("hyperparameter num_round is missing: for how many rounds to train")
    if parameters.get("objective", "").startswith("multi:") and "num_class" not in parameters:
        raise ClientError(f"hyperparameter num_class is missing: objective {parameters['objective']} needs it")


def booster_parameters(parameters: dict[str, str]) -> dict[str, Any]:
    """What `xgboost.train` is given. What today's XGBoost calls otherwise, or has not any more, is said in a line."""
    ours: dict[str, Any] = {}
    for name, value in parameters.items():
        if name in _OF_THE_IMAGE:
            continue
        if name in _GONE:
            print(f"hyperparameter {name} is gone from today's XGBoost, and left out")
        elif name == "silent":
            ours["verbosity"] = "0" if value.lower() in ("1", "true") else "1"
            print(f"hyperparameter silent is gone from today's XGBoost: verbosity {ours['verbosity']} in its place")
        elif name == "objective" and value == "reg:linear":
            ours[name] = "reg:squarederror"
            print("objective reg:linear is reg:squarederror by now")
        elif name == "eval_metric":
            ours[name] = [metric.strip() for metric in value.strip("[]").replace('"', "").split(",") if metric.strip()]
        else:
            ours[name] = value
    return ours


def files_of(channel: pathlib.Path) -> list[pathlib.Path]:
    """A channel's files in the order of their names, without what Spark and editors put beside them."""
    return [path for path in sorted(channel.rglob("*"))
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(channel).parts)]


def _number(text: str) -> float:
    return float(text) if text.strip() else float("nan")


def _table(path: pathlib.Path) -> Any:
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        first = file.readline()
    try:
        delimiter = csv.Sniffer().sniff(first.strip(), delimiters=",;\t|").delimiter
    except csv.Error:
        delimiter = ","  # one column, or too short to tell
    for cell in next(csv.reader([first], delimiter=delimiter), []):
        try:
            _number(cell)
        except ValueError:
            raise ClientError(f"{path.name}: found {cell[:40]!r} in the first line, expected numbers alone: the label "
                              "first, and no header") from None
    try:
        return np.loadtxt(path, delimiter=delimiter, ndmin=2, dtype=np.float32)
    except ValueError:
        pass  # an empty cell is a missing value; the slower way knows that, too
    try:
        return np.loadtxt(path, delimiter=delimiter, ndmin=2, dtype=np.float32, encoding="utf-8", converters=_number)
    except (ValueError, UnicodeDecodeError) as error:
        raise ClientError(f"{path.name}: {error}") from None


def _of_csv(paths: list[pathlib.Path], weights: bool) -> Any:
    tables = [_table(path) for path in paths]
    widths = sorted({table.shape[1] for table in tables})
    first = 2 if weights else 1
    if len(widths) > 1:
        raise ClientError(f"its files have different numbers of columns: {widths}")
    if widths[0] <= first:
        raise ClientError(f"found {widths[0]} columns, expected a label{', a weight' if weights else ''} and features")
    table = np.concatenate(tables)
    return xgb.DMatrix(table[:, first:], table[:, 0], weight=table[:, 1] if weights else None)


def _of_libsvm(paths: list[pathlib.Path]) -> Any:
    # One file with a name of ours: XGBoost reads more than a path in a name that has '?' or '#' in it.
    with tempfile.TemporaryDirectory() as folder:
        whole = pathlib.Path(folder) / "channel"
        with open(whole, "wb") as out:
            for path in paths:
                with open(path, "rb") as part:
                    shutil.copyfileobj(part, out)
                out.write(b"\n")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "(?s).*Text file input has been deprecated")
                return xgb.DMatrix(f"{whole}?format=libsvm")
        except (xgb.core.XGBoostError, ValueError) as error:
            raise ClientError(f"it is no libsvm: {str(error).splitlines()[0]}") from None


def load(channel: pathlib.Path, content_type: str, weights: bool) -> Any:
    """A channel as a DMatrix. Content types are SageMaker's, with their parameters: `text/csv; label_size=1`."""
    kind, *options = [part.strip().lower() for part in content_type.split(";")]
    if any(option not in ("", "label_size=1", "charset=utf-8", "charset=utf8") for option in options):
        raise ClientError(f"content type {content_type!r}: accepted parameters: label_size=1")
    paths = files_of(channel)
    if not paths:
        raise ClientError("it holds no file")
    if kind in _CSV:
        data = _of_csv(paths, weights)
    elif kind in _LIBSVM:
        data = _of_libsvm(paths)
    else:
        raise ClientError(f"content type {content_type!r} is not offered here; accepted: text/csv, text/libsvm")
    if data.num_row() == 0 or data.num_col() == 0:
        raise ClientError(f"it holds no row with a feature, read as {kind}")
    return data


def _save(booster: Any, path: pathlib.Path) -> None:
    # Whoever is killed in the middle leaves the one that was there. The suffix says the format; the name does not.
    fresh = path.with_name(f".{path.name}.ubj")
    booster.save_model(str(fresh))
    fresh.replace(path)


class Rounds(xgb.callback.TrainingCallback):  # type: ignore[misc]
    """After each round: a checkpoint, where they are wanted, and the end, where somebody asks for it.

    :param checkpoints: their directory, or None
    """

    def __init__(self, checkpoints: pathlib.Path | None) -> None:
        super().__init__()
        self.checkpoints = checkpoints
        self.ended = False
        signal.signal(signal.SIGTERM, self._end)

    def _end(self, *_: object) -> None:
        self.ended = True

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Called by XGBoost; True ends the training."""
        if self.checkpoints is not None:
            done = model.num_boosted_rounds() - 1
            _save(model, self.checkpoints / f"{CHECKPOINT}.{done}")
            (self.checkpoints / f"{CHECKPOINT}.{done - KEPT_CHECKPOINTS}").unlink(missing_ok=True)
        return self.ended


def _load(path: pathlib.Path) -> Any:
    booster = xgb.Booster()
    booster.load_model(bytearray(path.read_bytes()))
    return booster


def last_checkpoint(folder: pathlib.Path) -> tuple[pathlib.Path | None, int]:
    """The newest one and how many rounds are in it."""
    rounds = [int(found[1]) for path in folder.iterdir() if (found := re.fullmatch(rf"{CHECKPOINT}\.(\d+)", path.name))]
    return (folder / f"{CHECKPOINT}.{max(rounds)}", max(rounds) + 1) if rounds else (None, 0)


def _channels(root: pathlib.Path, weights: bool) -> Iterable[tuple[Any, str]]:
    described = json.loads((root / "input/config/inputdataconfig.json").read_text())
    if "train" not in described:
        raise ClientError("channel train is missing: the rows to learn from")
    for name in ("train", "validation"):
        if name in described:
            try:
                content_type = described[name].get("ContentType") or "text/libsvm"
                yield load(root / "input/data" / name, content_type, weights), name
            except ClientError as error:
                raise ClientError(f"channel {name}: {error}") from None
    for name in sorted({*described} - {"train", "validation", "code"}):
        print(f"channel {name} is not read: the algorithm has train and validation")


def train(root: pathlib.Path) -> None:
    """Train, and leave the model in ``model/``."""
    config = root / "input/config"
    parameters = decoded(json.loads((config / "hyperparameters.json").read_text()))
    check(parameters)
    watched = list(_channels(root, parameters.get("csv_weights", "0") == "1"))
    rounds = int(parameters["num_round"])
    patience = parameters.get("early_stopping_rounds")
    if patience and len(watched) < 2:
        raise ClientError("hyperparameter early_stopping_rounds: it needs a channel validation")
    checkpoints, before, done = None, None, 0
    if (config / "checkpointconfig.json").exists():
        checkpoints = pathlib.Path(json.loads((config / "checkpointconfig.json").read_text())["LocalPath"])
        checkpoints.mkdir(parents=True, exist_ok=True)
        before, done = last_checkpoint(checkpoints)
    if before is not None:
        print(f"goes on from {before.name}, after {done} of {rounds} rounds", flush=True)
    ending = Rounds(checkpoints)
    if done < rounds:
        booster = xgb.train(
            booster_parameters(parameters), watched[0][0], rounds - done, evals=watched, verbose_eval=True,
            early_stopping_rounds=int(patience) if patience else None, xgb_model=_load(before) if before else None,
            callbacks=[ending])
    else:
        assert before is not None
        booster = _load(before)
    # As in the image the model is the best one, and not the one at which patience ran out. Linear ones have no rounds.
    best = booster.attr("best_iteration") if patience and parameters.get("booster") != "gblinear" else None
    if best is not None:
        booster = booster[: int(best) + 1]
    if not ending.ended or parameters.get("save_model_on_termination", "false").lower() == "true":
        _save(booster, root / "model" / MODEL)


def main(words: list[str]) -> int:
    """Train below this directory; why it could not is in ``output/failure``, and exit code 1."""
    root = pathlib.Path(words[0])
    try:
        train(root)
    except ClientError as error:
        (root / "output" / "failure").write_text(f"ClientError: {error}")
        print(f"ClientError: {error}", file=sys.stderr)
        return 1
    except xgb.core.XGBoostError as error:
        # What XGBoost says of a parameter is behind the place in its sources, in front of a stack of frames.
        said = next((line for line in str(error).splitlines() if line.strip()), "")
        (root / "output" / "failure").write_text(re.sub(r"^\[[^]]*\] \S+:\d+:\s*", "", said))
        raise
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    sys.exit(main(sys.argv[1:]))
