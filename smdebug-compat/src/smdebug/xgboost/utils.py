"""Data files of XGBoost jobs, and trees as columns."""

import csv
import json
import os
import warnings

import xgboost as xgb
from tdbg.adaptors.xgboost.trees import booster_of, columns
from tdbg.compat.exceptions import SMDebugError

CSV, LIBSVM = "csv", "libsvm"
_TYPES = {"csv": CSV, "text/csv": CSV, "libsvm": LIBSVM, "text/libsvm": LIBSVM, "text/x-libsvm": LIBSVM}
INVALID_CONTENT_TYPE_ERROR = ("{invalid_content_type} is not an accepted ContentType: 'csv', 'libsvm', 'text/csv', "
                              "'text/libsvm', 'text/x-libsvm'.")
INVALID_CONTENT_FORMAT_ERROR = ("First line '{line_snippet}...' of file '{file_name}' is not '{content_type}' format. "
                                "Please ensure the file is in '{content_type}' format.")


def _at_least(*version):
    return lambda: tuple(int(part) for part in xgb.__version__.split(".")[:2]) >= version


is_xgb_1_3_and_later, is_xgb_1_5_and_later, is_xgb_1_7_and_later = _at_least(1, 3), _at_least(1, 5), _at_least(1, 7)


def get_content_type(content_type_cfg_val) -> str:
    """"csv" or "libsvm"; None is libsvm. :raises SMDebugError: no content type"""
    kind = _TYPES.get((content_type_cfg_val or LIBSVM).lower())
    if kind is None:
        raise SMDebugError(INVALID_CONTENT_TYPE_ERROR.format(invalid_content_type=content_type_cfg_val))
    return kind


def _data_files(path):
    """The file; of a directory the data files in its first subdirectory without others: no hidden ones, no caches."""
    if not os.path.exists(path):
        raise SMDebugError(f"{path} is not a valid path!")
    if os.path.isfile(path):
        return [path]
    folder = next(root for root, folders, _ in os.walk(path) if not folders)
    return [entry.path for entry in sorted(os.scandir(folder), key=lambda e: e.name)
            if entry.is_file() and entry.name[0] not in "._"
            and not (".cache" in entry.name and ("dtrain" in entry.name or "dval" in entry.name))]


def _wrong(path, line, kind):
    return SMDebugError(INVALID_CONTENT_FORMAT_ERROR.format(line_snippet=line[:50].rstrip("\n"), content_type=kind,
                                                            file_name=os.path.basename(path)))


def _delimiter(line):
    try:
        return csv.Sniffer().sniff(line).delimiter
    except csv.Error as error:
        raise SMDebugError(f"Could not determine delimiter on line {line[:50]}:\n{error}") from None


def _libsvm_features(line):
    """How many `<index>:<value>` follow `<label>[:<weight>]`; -1: it is no such line."""
    label, *features = line.split()  or [""]
    try:
        numbers = [float(part) for part in label.split(":")]
    except ValueError:
        return -1
    if len(numbers) > 2 or any(feature.count(":") != 1 for feature in features):
        return -1
    return len(features)


def validate_data_file_path(data_path, content_type):
    """:raises SMDebugError: not there, or a file whose first telling line is not of this type"""
    kind = get_content_type(content_type)
    for path in _data_files(data_path):
        with open(path, encoding="utf-8", errors="ignore") as file:
            if kind == CSV:
                line = file.readline()
                _delimiter(line)
                if _libsvm_features(line) > 0:
                    raise _wrong(path, line, "CSV")
                continue
            for line in file:
                count = _libsvm_features(line)
                if count < 0:
                    raise _wrong(path, line, "LIBSVM")
                if count > 1:
                    break


def _load(address):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")     # XGBoost would have others read texts
        try:
            return xgb.DMatrix(address)
        except xgb.core.XGBoostError as error:
            raise SMDebugError(f"Failed to load {address}: {error}") from None


def get_csv_dmatrix(files_path, csv_weights=0):
    """:param csv_weights: 1: the second column holds weights"""
    with open(_data_files(files_path)[0], encoding="utf-8") as file:
        delimiter = _delimiter(file.readline())
    return _load(f"{files_path}?format=csv&label_column=0&delimiter={delimiter}" + ("&weight_column=1" if csv_weights == 1 else ""))


def get_libsvm_dmatrix(files_path):
    return _load(f"{files_path}?format=libsvm")


def get_dmatrix(data_path, content_type, csv_weights=0):
    """The DMatrix of a file or a directory of them; None where there is nothing.

    :raises SMDebugError: what XGBoost cannot read, or a type that is none
    """
    if not os.path.exists(data_path) or (os.path.isdir(data_path) and not os.listdir(data_path)):
        return None
    if get_content_type(content_type) == CSV:
        return get_csv_dmatrix(data_path, csv_weights)
    return get_libsvm_dmatrix(data_path)


def parse_tree_model(booster, iteration, fmap="") -> dict:
    """{column: array} of the tree of that number, one row per node; without rows for a booster that has no trees."""
    if booster_of(booster) not in ("gbtree", "dart"):
        return columns([], iteration)
    dumps = booster.get_dump(fmap, with_stats=True, dump_format="json")
    return columns([dumps[iteration]], iteration)
