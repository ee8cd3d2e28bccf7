"""Truth values of command lines, times, and what the names of the profiler's files say."""

import os
import re
from datetime import datetime, timezone
from enum import Enum

from .._not_offered import PROFILER, not_offered

_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")


def str2bool(v) -> bool:
    """"yes", "True", "1", ... and "no", "False", "0", ...; a bool as it is. :raises ValueError: anything else"""
    if isinstance(v, bool):
        return v
    if v.lower() in _TRUE:
        return True
    if v.lower() in _FALSE:
        return False
    raise ValueError(f"invalid truth value {v!r}: one of {', '.join(_TRUE + _FALSE)}")


class TimeUnits(Enum):
    SECONDS = 1
    MILLISECONDS = 2
    MICROSECONDS = 3
    NANOSECONDS = 4


_NANOS = {TimeUnits.SECONDS: 10**9, TimeUnits.MILLISECONDS: 10**6, TimeUnits.MICROSECONDS: 10**3, TimeUnits.NANOSECONDS: 1}


def convert_utc_timestamp_to_nanoseconds(timestamp, unit=TimeUnits.MICROSECONDS):
    return timestamp if unit is TimeUnits.NANOSECONDS else int(timestamp * _NANOS[unit])


def convert_utc_timestamp_to_microseconds(timestamp, unit=TimeUnits.MICROSECONDS):
    return timestamp / 1000 if unit is TimeUnits.NANOSECONDS else int(timestamp * (_NANOS[unit] // 1000))


def convert_utc_timestamp_to_seconds(timestamp, unit=TimeUnits.MICROSECONDS):
    return timestamp / 10**9 if unit is TimeUnits.NANOSECONDS else int(timestamp / (10**9 // _NANOS[unit]))


def convert_utc_datetime_to_nanoseconds(timestamp_datetime: datetime) -> int:
    return convert_utc_timestamp_to_nanoseconds(timestamp_datetime.timestamp(), TimeUnits.SECONDS)


def convert_utc_datetime_to_microseconds(timestamp_datetime: datetime) -> int:
    return convert_utc_timestamp_to_microseconds(timestamp_datetime.timestamp(), TimeUnits.SECONDS)


def _readable(seconds):
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S:%f")


def us_since_epoch_to_human_readable_time(us_since_epoch) -> str:
    return _readable(us_since_epoch / 1e6)


def ns_since_epoch_to_human_readable_time(ns_since_epoch) -> str:
    return _readable(ns_since_epoch / 1e9)


# Names of files -------------------------------------------------------------------------------------------------------

def is_valid_tracefilename(filename: str) -> bool:
    """<...>/pevents/<hour>/<end, us>_<node>_<kind>.json"""
    return filename.endswith(".json") and "pevents" in filename and len(filename.split("_")) >= 3


def is_valid_tfprof_tracefilename(filename: str) -> bool:
    return filename.endswith("trace.json.gz") and "tensorflow/detailed_profiling" in filename


def validate_system_profiler_file(filename: str) -> bool:
    """<...>/system/<...>/<minute, s>.algo-<n>.json"""
    return re.match(r".+/system/.+/(\d{10}).algo-\d+.json", filename) is not None


def get_node_id_from_tracefilename(filename: str):
    return os.path.basename(filename).split("_")[1] if is_valid_tracefilename(filename) else ""


def get_timestamp_from_tracefilename(filename: str) -> int:
    """Of the last event in the file, us; 0 of what is no such file."""
    return int(os.path.basename(filename).split("_")[0]) if is_valid_tracefilename(filename) else 0


def get_node_id_from_system_profiler_filename(filename: str):
    return os.path.basename(filename).split(".")[1] if validate_system_profiler_file(filename) else None


def get_utctimestamp_us_since_epoch_from_system_profiler_file(filename: str):
    return int(os.path.basename(filename).split(".")[0]) * 10**6 if validate_system_profiler_file(filename) else None


__getattr__ = not_offered(__name__, PROFILER, "write_tf_profiler_metadata_file", "read_tf_profiler_metadata_file",
                          "stop_tf_profiler", "start_smdataparallel_profiler", "stop_smdataparallel_profiler")
