"""Where a run lies: a path, or a URL of one; and files that appear there as a whole."""

from __future__ import annotations

import os
import re
import urllib.parse

from .errors import InvalidArgumentError, UnimplementedError

#: What copies a run from where trainings of a cloud leave theirs.
_COPIES = {"gs": "gcloud storage rsync -r"}


def local_directory(path: object) -> str:
    """The directory that a path or a file:// URL means; an s3:// URL as it is. Looks at no disk.

    >>> local_directory("file:///data/my%20run"), local_directory(" runs/a "), local_directory("s3://bucket/a")
    ('/data/my run', 'runs/a', 's3://bucket/a')

    :raises UnimplementedError: another kind of URL; the message says how to get at the run
    :raises InvalidArgumentError: a file URL of another machine, or without a path
    """
    path = str(path).strip()
    scheme, separator, rest = path.partition("://")
    if not separator or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", scheme):
        return path
    if scheme == "s3":
        return path
    if scheme.lower() != "file":
        copy = _COPIES.get(scheme.lower())
        how = f"{copy} {path} DIRECTORY" if copy else "copy it to a directory of this machine"
        raise UnimplementedError(f"{path}: runs are read from directories, file:// and s3:// URLs; for this one: {how},"
                                 " and open the directory (again after another copy, while the training goes on)")
    host, slash, below = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise InvalidArgumentError(f"{path}: a file URL is file:///absolute/path")
    return urllib.parse.unquote("/" + below)


def write_whole(path: str, data: bytes | str, temporary: str | None = None) -> None:
    """Replaces the file: a reader finds it as it was, or whole. A symbolic link is replaced, and never written through.

    :param temporary: the name until then; default: `path`.tmp
    """
    temporary = temporary or path + ".tmp"
    mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, mode, 0o666), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
    os.replace(temporary, path)
