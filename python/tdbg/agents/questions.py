"""Asks the program: `tdbg view` for what it answers over HTTP, other commands for what they print as JSON.

Nothing is read here. Which runs there are, and that no others are opened, is that server's business.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import math
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import numpy as np

_SECONDS = 120
_DAMAGED = 5  # exit code
_DTYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4", "I16": "<i2",
           "U16": "<u2", "U8": "u1"}
_PR_SET_PDEATHSIG = 1
# The server is this machine's, whatever proxy the environment names: that one would get the address and its token.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Refused(Exception):
    """A question that has no answer, in a sentence."""


def _end_with_us() -> None:
    # However this process ends, no server of ours stays behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def plain(value: float) -> float | str:
    """As JSON has it: NaN and infinities as text."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return float(f"{value:.6g}")


class Columns:
    """An answer in columns: a safetensors file (docs/http.md)."""

    def __init__(self, body: bytes) -> None:
        size = int.from_bytes(body[:8], "little")
        header = json.loads(body[8:8 + size])
        self.head: dict[str, Any] = json.loads(header.pop("__metadata__")["answer"])
        self._arrays: dict[str, np.ndarray[Any, np.dtype[Any]]] = {
            name: np.frombuffer(body, _DTYPES[entry["dtype"]], math.prod(entry["shape"]),
                                8 + size + entry["data_offsets"][0]).reshape(entry["shape"])
            for name, entry in header.items()}

    def __getitem__(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        return self._arrays[name]


class Questions:
    """Answers about the runs below `root`; "": those of here."""

    def __init__(self, program: str, root: str) -> None:
        self._program = program
        self._server = subprocess.Popen([program, "view", *([root] if root else []), "--json", "--no-browser"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        preexec_fn=_end_with_us)
        atexit.register(self._server.terminate)
        assert self._server.stdout and self._server.stderr
        line = self._server.stdout.readline()
        if not line:
            raise Refused(self._server.stderr.read().decode(errors="replace").strip() or "tdbg view did not start")
        self._address = json.loads(line)["address"]

    def document(self, question: str, **parameters: object) -> Any:
        """An answer that is JSON."""
        return json.loads(self._get(question, parameters))

    def columns(self, question: str, **parameters: object) -> Columns:
        """An answer in columns."""
        return Columns(self._get(question, parameters))

    def command(self, *words: str, accepted: tuple[int, ...] = (0, 1)) -> tuple[str, str]:
        """What a command prints, and what of a damaged run it could not read. `words` are ours but for paths of runs
        that `document` named."""
        try:
            done = subprocess.run([self._program, *words], stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired as error:
            raise Refused(f"tdbg {words[0]} took longer than {_SECONDS} s") from error
        beside = done.stderr.decode(errors="replace").strip()
        # A damaged run has an answer, too, as far as it can be read.
        if done.returncode not in accepted and not (done.returncode == _DAMAGED and done.stdout.strip()):
            raise Refused(beside or f"exit code {done.returncode}")
        unread = [line for line in beside.splitlines() if "could not be read" in line]
        return done.stdout.decode(errors="replace"), "\n".join(unread)

    def path(self, run: str) -> str:
        """Where a run lies that the server lists."""
        return str(self.document("run", run=run)["path"])

    def _get(self, question: str, parameters: dict[str, object]) -> bytes:
        query = urllib.parse.urlencode({key: value for key, value in parameters.items() if value not in (None, "")})
        try:
            with _OPENER.open(f"{self._address}api/v1/{question}?{query}", timeout=_SECONDS) as response:
                body: bytes = response.read()
                return body
        except urllib.error.HTTPError as error:
            try:
                why = str(json.loads(error.read())["error"])
            except (ValueError, KeyError):
                why = f"status {error.code}"  # longer than a request may be
            raise Refused(why) from error
        except OSError as error:
            raise Refused(f"the server of these questions has ended ({error}); start tdbg mcp again") from error
