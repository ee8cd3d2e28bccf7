"""Archives that a service job names: unpacked without trusting them, and packed.

    python archive.py unpack ARCHIVE DIRECTORY
    python archive.py unzip FILE DIRECTORY      FILE: a zip, as it is or as base64
    python archive.py pack DIRECTORY ARCHIVE

Started by ``tdbg serve`` (src/service/helpers.h), by path: it imports nothing but the standard library.
"""

import base64
import io
import os
import pathlib
import shutil
import sys
import tarfile
import zipfile

#: Of one archive, unpacked. Code is megabytes; a bomb of a few kilobytes would fill the disk.
MOST_BYTES = int(os.environ.get("TDBG_ARCHIVE_BYTES", str(16 << 30)))
MOST_MEMBERS = 200_000
#: Of a function's code, unpacked, whose members are read whole: Lambda's own bound.
MOST_CODE_BYTES = 250 << 20


class ArchiveRefused(Exception):
    """The archive holds what no archive of code or of a model does."""


def _place(name: str) -> pathlib.PurePosixPath:
    path = pathlib.PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ArchiveRefused(f"a member leads out of the archive: {name!r}")
    return path


def unpack(archive: pathlib.Path, directory: pathlib.Path) -> int:
    """Unpack files and directories, and return how many there were.

    Links, devices and pipes are refused, and so is whatever leads out of ``directory``: an archive comes from whoever
    may write into a bucket. Nothing of owners, and of modes only what makes a script executable.
    """
    written, members = 0, 0
    try:
        with tarfile.open(archive, "r:*") as tar:
            for member in tar:
                members += 1
                if members > MOST_MEMBERS:
                    raise ArchiveRefused(f"more than {MOST_MEMBERS} members")
                target = directory / _place(member.name)
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                if not member.isreg():
                    raise ArchiveRefused(f"a member is neither file nor directory: {member.name!r}")
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(member)
                if source is None:
                    raise ArchiveRefused(f"a member has no bytes: {member.name!r}")
                # A name that is there twice replaces the first one, as tar does, and is never written through.
                target.unlink(missing_ok=True)
                with source, open(target, "xb") as out:
                    while chunk := source.read(1 << 20):
                        written += len(chunk)
                        if written > MOST_BYTES:
                            raise ArchiveRefused(f"more than {MOST_BYTES} bytes once it is unpacked")
                        out.write(chunk)
                target.chmod(0o755 if member.mode & 0o100 else 0o644)
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise ArchiveRefused(f"it cannot be unpacked: {error}") from error
    return members


def unzip(file: pathlib.Path, directory: pathlib.Path) -> int:
    """Unpack a zip of code with the same care, and return how many members there were."""
    data = file.read_bytes()
    try:
        if not data.startswith(b"PK"):
            data = base64.b64decode(data, validate=True)
        written = 0
        with zipfile.ZipFile(io.BytesIO(data)) as code:
            for member in code.infolist():
                target = directory / _place(member.filename)
                if member.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                written += member.file_size
                if written > MOST_CODE_BYTES:
                    raise ArchiveRefused(f"more than {MOST_CODE_BYTES} bytes once it is unpacked")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(code.read(member))
        return len(code.infolist())
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, NotImplementedError) as error:
        raise ArchiveRefused(f"it is no zip that can be unpacked: {error}") from error


def pack(directory: pathlib.Path, archive: pathlib.Path) -> None:
    """Pack what lies in ``directory``; links stay links, sockets and pipes are left out."""
    partial = archive.with_name(archive.name + ".partial")
    with tarfile.open(partial, "w:gz", compresslevel=1) as tar:
        for entry in sorted(directory.iterdir()):
            tar.add(entry, arcname=entry.name, filter=lambda m: m if m.isreg() or m.isdir() or m.issym() else None)
    partial.replace(archive)


def main(words: list[str]) -> int:
    """Run one of the commands above; what goes wrong is a line on standard error and exit code 5."""
    verb, first, second = words
    try:
        if verb == "unpack":
            unpack(pathlib.Path(first), pathlib.Path(second))
        elif verb == "unzip":
            unzip(pathlib.Path(first), pathlib.Path(second))
        else:
            pack(pathlib.Path(first), pathlib.Path(second))
    except (ArchiveRefused, OSError, shutil.Error) as error:
        print(f"{first}: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
