"""JSON files: hook configurations of smdebug's, and requests of create_training_job."""

from __future__ import annotations

import re
from typing import Any

from tdbg.migrate import names
from tdbg.migrate.jobs import is_request
from tdbg.migrate.scan import Finding

_SAVING = ("save_interval", "save_steps", "start_step", "end_step")
_MODES = ("train", "eval", "predict", "global")
_SHARED = ("include_regex", "reductions", "save_raw_tensor", "save_shape", *_SAVING,
           *(f"{mode}.{key}" for mode in _MODES for key in _SAVING))
HOOK_PARAMETERS = frozenset((*_SHARED, "save_all", "include_workers", "export_tensorboard", "tensorboard_dir",
                             "dry_run"))
COLLECTION_PARAMETERS = frozenset((*_SHARED, "save_histogram"))
TOP = frozenset(("LocalPath", "S3OutputPath", "S3Path", "HookParameters", "CollectionConfigurations"))
_KEY = re.compile(r'"([^"\\\n]{1,200})"\s*:')
_UNKNOWN = "no key of smdebug's: one warning, and nothing else"
_BUCKET = "tensors stay in the run directory; `--upload s3://BUCKET/PREFIX` puts them into a bucket, too"


def _lines(text: str) -> dict[str, int]:
    """Where each key is first."""
    found: dict[str, int] = {}
    line, at = 1, 0
    for key in _KEY.finditer(text):
        line += text.count("\n", at, key.start())
        at = key.start()
        found.setdefault(key.group(1), line)
    return found


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def read(text: str, document: Any) -> list[Finding]:
    """What becomes of its keys; [] where it is neither."""
    if not isinstance(document, dict):
        return []
    lines = _lines(text)
    if is_request(document):
        verdict = names.of_job("create_training_job") or names.Verdict(names.BECOMES, "")
        return [Finding(lines.get("TrainingJobName", 1), 0, verdict.verdict, "create_training_job", verdict.why)]
    if not TOP & set(document):
        return []
    found = []

    def key(name: str, known: frozenset[str]) -> None:
        if name in known:
            verdict = names.BECOMES if name in ("S3OutputPath", "S3Path") else names.SAME
            found.append(Finding(lines.get(name, 1), 0, verdict, name, _BUCKET if verdict == names.BECOMES else ""))
        else:
            found.append(Finding(lines.get(name, 1), 0, names.DIFFERS, name, _UNKNOWN))

    for name in document:
        key(str(name), TOP)
    for name in _object(document.get("HookParameters")):
        key(name, HOOK_PARAMETERS)
    collections = document.get("CollectionConfigurations")
    for one in collections if isinstance(collections, list) else ():
        for name in _object(_object(one).get("CollectionParameters")):
            key(name, COLLECTION_PARAMETERS)
    return sorted(set(found), key=lambda f: (f.line, f.name))
