"""What README.md and docs/*.md tell their readers to type: the fenced blocks, and how a command of theirs is executed.

A block of `sh` holds commands, one of `python` code, one of `text` what was printed; every other language is data.
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys

from program import BINARY, ROOT

BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: These go on until they are interrupted; they have said something by then.
SERVES = ("tdbg view",)


@dataclasses.dataclass
class Block:
    page: str
    language: str
    text: str

    def commands(self):
        """Its lines; those that are continued, and here documents, as one."""
        if "<<'" in self.text:
            return [self.text]
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def pages():
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


def blocks(page, *languages):
    found = [Block(page, language, text) for _, language, text in BLOCK.findall((ROOT / page).read_text())]
    return [block for block in found if block.language in languages] if languages else found


def environment(tdbg):
    """A shell in which `tdbg` and `python` are those under test."""
    return {**tdbg.env, "PYTHONPATH": tdbg.env["TDBG_HOME"], "MPLBACKEND": "Agg",
            "PATH": f"{BINARY.parent}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


def execute(tdbg, command, timeout=120):
    """(exit code, all that was printed)"""
    if command.startswith(SERVES):
        return serve(tdbg, command)
    done = subprocess.run(["bash", "-c", command], cwd=tdbg.directory, env=environment(tdbg), capture_output=True, text=True,
                          timeout=timeout)
    return done.returncode, done.stdout + done.stderr


def serve(tdbg, command):
    """Until it has named its address."""
    server = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=tdbg.directory, env=environment(tdbg), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = server.stdout.readline()
    server.send_signal(signal.SIGINT)
    said += server.communicate(timeout=30)[0]
    return 0 if "http://" in said else server.returncode, said


def execute_python(tdbg, code, before=""):
    done = subprocess.run([sys.executable, "-c", before + "\n" + code], cwd=tdbg.directory, env=environment(tdbg), capture_output=True, text=True,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


def words(text):
    """As a reader compares two answers: without line breaks, and without the digits that depend on a processor."""
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"\d[\d,.]*(e[+-]?\d+)?", "#", text)
